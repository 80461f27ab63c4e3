"""Publishing with the Python API: guarantees and errors of each delivery mode."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

import penstock
from penstock import Connection, Outgoing
from penstock.client.partitioner import partition_of_key
from penstock.foundation.codes import ErrorCode
from tests.brokers import BrokerProcess

from .api_lab import all_of, connect, new_topic, numbers
from .driver_confluent import ConfluentDriver
from .drivers import NOW_MS
from .proxy import LossyProxy

DELIVERIES = ["at-most-once", "at-least-once", "exactly-once"]


@pytest.fixture
def mq(group_broker: BrokerProcess) -> Iterator[Connection]:
    with connect(group_broker.kafka) as connection:
        yield connection


@pytest.fixture
def topic(group_broker: BrokerProcess) -> str:
    return new_topic(group_broker.kafka)


def test_publish_returns_partition_and_offset(mq: Connection, topic: str) -> None:
    first = mq.publish(topic, {"id": 1}, timestamp=NOW_MS)
    assert (first.topic, first.partition, first.offset, first.timestamp_ms) == (topic, 0, 0, NOW_MS)
    assert [mq.publish(topic, {"id": number}).offset for number in range(5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_every_promise_keeps_the_message(mq: Connection, topic: str, delivery: str) -> None:
    answers = [mq.publish(topic, number, delivery=delivery) for number in range(20)]  # type: ignore[arg-type]
    assert all_of(mq, topic) == list(range(20))
    expected = [None] * 20 if delivery == "at-most-once" else list(range(20))
    assert [answer.offset for answer in answers] == expected


def test_all_fields_of_a_message_arrive_at_other_clients(
    mq: Connection, topic: str, group_broker: BrokerProcess
) -> None:
    moment = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    mq.publish(topic, {"id": 1}, key="42", tag="eu", headers={"trace": "abc", "raw": b"\xff"}, timestamp=moment)
    mq.publish(topic, "text", key=b"\x00")
    mq.publish(topic, b"\xff\x00")
    mq.publish(topic, None, key="42")
    first, second, third, fourth = ConfluentDriver(group_broker.kafka).consume(topic, 0, 4)
    assert (first.key, first.value, first.timestamp_ms) == (b"42", b'{"id":1}', round(moment.timestamp() * 1000))
    assert first.headers == (
        ("content-type", b"application/json"),
        ("trace", b"abc"),
        ("raw", b"\xff"),
        ("tag", b"eu"),
    )
    assert (second.key, second.value, second.headers) == (
        b"\x00",
        b"text",
        (("content-type", b"text/plain; charset=utf-8"),),
    )
    assert (third.key, third.value, third.headers) == (None, b"\xff\x00", ())
    assert (fourth.key, fourth.value, fourth.headers) == (b"42", None, ())


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_equal_keys_meet_where_kafkas_own_clients_put_them(
    mq: Connection, group_broker: BrokerProcess, delivery: str
) -> None:
    topic = new_topic(group_broker.kafka, partitions=7)
    for number in range(30):
        key = f"key-{number}"
        place = mq.publish(topic, number, key=key, delivery=delivery)  # type: ignore[arg-type]
        assert place.partition == partition_of_key(key.encode(), 7)


def test_a_partition_can_be_chosen(mq: Connection, group_broker: BrokerProcess) -> None:
    topic = new_topic(group_broker.kafka, partitions=3)
    assert [mq.publish(topic, b"x", partition=number).partition for number in (2, 0, 1)] == [2, 0, 1]
    with pytest.raises(penstock.UnknownTopic, match="no such topic or partition") as caught:
        mq.publish(topic, b"x", partition=3)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_many_messages_are_answered_in_order(mq: Connection, topic: str) -> None:
    answers = mq.publish_many(topic, (Outgoing(number, key="same") for number in range(5000)), max_in_flight=700)
    assert [answer.offset for answer in answers] == list(range(5000))
    assert numbers(mq.subscribe(topic, limit=5000)) == list(range(5000))


def test_a_message_of_many_may_go_elsewhere(mq: Connection, topic: str, group_broker: BrokerProcess) -> None:
    other = new_topic(group_broker.kafka)
    answers = mq.publish_many(topic, [1, Outgoing(2, topic=other), Outgoing(3, tag="eu")])
    assert [(answer.topic, answer.offset) for answer in answers] == [(topic, 0), (other, 0), (topic, 1)]


def test_a_stream_takes_no_more_than_may_be_in_flight(mq: Connection, topic: str) -> None:
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            yield taken
            taken += 1

    stream = mq.publish_stream(topic, endless(), max_in_flight=10)
    assert taken == 0
    assert [next(stream).offset for _ in range(50)] == list(range(50))
    assert taken < 50 + 10
    stream.close()  # type: ignore[attr-defined]


def test_of_many_messages_the_one_that_failed_is_named(mq: Connection, topic: str) -> None:
    with pytest.raises(
        penstock.PublishFailed, match=r"message 2 was not published \(the 2 before it were\)"
    ) as caught:
        mq.publish_many(topic, [1, 2, b"x" * 2_000_000, 4])
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_how_large_a_message_may_be_is_the_topic_s_to_say(mq: Connection, group_broker: BrokerProcess) -> None:
    small, large = new_topic(group_broker.kafka), new_topic(group_broker.kafka, max_message_bytes="5000000")
    with pytest.raises(penstock.PublishFailed, match=r"raise max\.message\.bytes") as caught:
        mq.publish(small, b"x" * 3_000_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert mq.publish(large, b"x" * 3_000_000).offset == 0
    assert [len(message.value or b"") for message in mq.subscribe(large, limit=1)] == [3_000_000]


def test_a_message_that_cannot_be_written_is_refused_before_it_is_sent(mq: Connection, topic: str) -> None:
    with pytest.raises(penstock.InvalidValue):
        mq.publish(topic, {1, 2})
    assert mq.publish(topic, "fine").offset == 0


def test_threads_share_a_connection(mq: Connection, topic: str) -> None:
    offsets: list[int | None] = []

    def work() -> None:
        offsets.extend([mq.publish(topic, number).offset for number in range(50)])

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(offset for offset in offsets if offset is not None) == list(range(400))


def test_a_topic_that_does_not_exist_is_made_or_refused_as_the_broker_says(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    lenient, strict = own_broker(), own_broker({"auto.create.topics.enable": False})
    with connect(lenient.kafka) as mq:
        assert mq.publish("new", 1).offset == 0
    with connect(strict.kafka, timeout_s=2) as mq:
        for delivery in DELIVERIES:
            with pytest.raises(penstock.UnknownTopic, match="penstock topic create") as caught:
                mq.publish("new", 1, delivery=delivery)  # type: ignore[arg-type]
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def lossy(own_broker: Callable[..., BrokerProcess]) -> Iterator[LossyProxy]:
    """A network that loses answers, in front of a broker."""
    proxy = LossyProxy()
    proxy.broker = own_broker(advertise=proxy.address).address
    yield proxy
    proxy.close()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_when_answers_are_lost_at_least_once_doubles_and_exactly_once_does_not(
    lossy: LossyProxy, delivery: str
) -> None:
    topic = new_topic(lossy.address)
    with connect(lossy.address) as mq:
        lossy.lose_every(5)
        for number in range(20):
            mq.publish(topic, number, delivery=delivery)  # type: ignore[arg-type]
        lossy.lose_every(0)
        assert lossy.cuts >= 2
        found = all_of(mq, topic)
    assert set(found) == set(range(20))
    assert (len(found) == 20) == (delivery == "exactly-once")


def test_messages_wait_for_a_broker_that_comes_back(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    topic = new_topic(broker.kafka)
    with connect(broker.kafka) as mq:
        mq.publish(topic, 0)
        broker.kill()
        waiting = threading.Thread(target=mq.publish_many, args=(topic, range(1, 50)))
        waiting.start()
        broker.start()
        waiting.join(20)
        assert not waiting.is_alive()
        assert all_of(mq, topic) == list(range(50))


def test_a_broker_that_stays_away_is_an_error_in_time(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    topic = new_topic(broker.kafka)
    with connect(broker.kafka, timeout_s=8) as mq:
        mq.publish(topic, 0)
        broker.kill()
        with pytest.raises(penstock.NotConnected, match=r"connection refused.*penstock serve") as caught:
            mq.publish(topic, 1)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    broker.start()


def test_nothing_is_published_over_a_closed_connection(group_broker: BrokerProcess, topic: str) -> None:
    mq = connect(group_broker.kafka)
    mq.publish(topic, 0)
    mq.close()
    mq.close()
    for use in (
        lambda: mq.publish(topic, 1),
        lambda: mq.publish_many(topic, [1]),
        lambda: mq.subscribe(topic),
        lambda: mq.transaction("late").__enter__(),
        lambda: mq.seek("group", topic, to="earliest"),
        mq.check,
    ):
        with pytest.raises(penstock.Closed, match="connect again"):
            use()

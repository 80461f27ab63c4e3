"""Delayed messages, as unmodified client libraries see them."""

import asyncio
import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import NewTopic

import penstock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.delays import DELAY, DELAY_LEVEL, DELAYED_FROM, DELIVER_AT, DUE_AT, ORIGINAL_TIMESTAMP
from penstock.records.build import Record, build_batch
from penstock.wire.messages.delayed_messages import CANCEL, CANCEL_KEY, LIST, DelayedMessagesRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.brokers import BrokerProcess

from .driver_confluent import QUIET, ConfluentDriver
from .drivers import COMPRESSIONS, AdminDriver, Message, Outgoing, refused
from .raw import RawClient
from .waiting import wait_until

SOON = b"700ms"
LATER = b"1h"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def make(kafka: str, topic: str, partitions: int = 1, **configs: str) -> None:
    wanted = {"delayed.messages": "true", **{name.replace("_", "."): text for name, text in configs.items()}}
    admin = ConfluentDriver(kafka).admin
    (made,) = admin.create_topics([NewTopic(topic, partitions, config=wanted)]).values()
    made.result(20)


def ask(raw: RawClient, topic: str, action: int, **fields: object) -> object:
    request = DelayedMessagesRequest(action=action, topic=topic, partition=0, **fields)

    def attempt() -> object:
        answer = raw.ask(request, 0)
        return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer

    return wait_until(attempt, "the delayed messages are read back")


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_records_of_one_batch_come_at_once_or_when_they_are_due(
    admin_client: AdminDriver, broker: BrokerProcess, topic: str, compression: str
) -> None:
    make(broker.kafka, topic)
    began_ms = now_ms()
    sent = [
        Outgoing(key=b"k", value=b"now 1", headers=(("a", b"b"),), timestamp_ms=began_ms - 5000),
        Outgoing(key=b"k", value=b"late", headers=((DELAY, b"1s"), ("a", b"b")), timestamp_ms=began_ms - 5000),
        Outgoing(key=b"k", value=b"soon", headers=((DELIVER_AT, b"%d" % (began_ms + 500)),)),
        Outgoing(key=None, value=b"now 2"),
        Outgoing(key=None, value=b"past", headers=((DELIVER_AT, b"%d" % (began_ms - 60_000)),)),
    ]
    admin_client.produce(topic, sent, compression=compression)
    found = admin_client.consume_from_start(topic, 5)
    assert [message.value for message in found if message.value.startswith(b"now")] == [b"now 1", b"now 2"]
    assert [message.value for message in found if message.offset >= 5] == [b"past", b"soon", b"late"]
    late = found[-1]
    assert (late.key, dict(late.headers)["a"]) == (b"k", b"b")
    assert dict(late.headers)[ORIGINAL_TIMESTAMP] == b"%d" % (began_ms - 5000)
    assert dict(late.headers)[DELAYED_FROM].endswith(b"/0/1")
    assert DELAY not in dict(late.headers)
    for message in found[-2:]:
        due_ms = int(dict(message.headers)[DUE_AT])
        assert due_ms <= message.timestamp_ms <= now_ms()
    assert late.timestamp_ms >= began_ms + 1000


def test_a_consumer_that_waits_gets_a_message_when_it_is_due(
    admin_client: AdminDriver, broker: BrokerProcess
) -> None:
    topic = f"due-{admin_client.name}"
    make(broker.kafka, topic)
    began_s = time.monotonic()

    def publish() -> None:
        admin_client.produce(topic, [Outgoing(value=b"soon", headers=((DELAY, SOON),))])

    (found,) = admin_client.consume_new(topic, 1, publish)
    assert found.value == b"soon"
    assert time.monotonic() - began_s >= 0.7


def test_an_idempotent_producer_goes_on_as_ever(admin_client: AdminDriver, broker: BrokerProcess, topic: str) -> None:
    make(broker.kafka, topic)
    headers = ((DELAY_LEVEL, b"1"),)
    sent = [Outgoing(value=b"%d" % number, headers=headers if number % 2 else ()) for number in range(20)]
    for _ in range(2):
        admin_client.produce(topic, sent, idempotent=True)
    found = admin_client.consume_from_start(topic, 40)
    assert sorted(int(message.value) for message in found) == sorted([*range(20)] * 2)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_hidden_records_are_skipped_with_every_codec(broker: BrokerProcess, topic: str, compression: str) -> None:
    make(broker.kafka, topic)
    client = ConfluentDriver(broker.kafka)
    sent = [Outgoing(value=b"%d" % number, headers=((DELAY, LATER),) if number % 3 else ()) for number in range(90)]
    client.produce(topic, sent, compression=compression)
    client.produce(topic, [Outgoing(value=b"hidden", headers=((DELAY, LATER),))] * 5, compression=compression)
    client.produce(topic, [Outgoing(value=b"last")], compression=compression)
    found = client.consume_from_start(topic, 31)
    assert [message.value for message in found] == [b"%d" % number for number in range(0, 90, 3)] + [b"last"]


def test_a_group_that_has_seen_only_hidden_records_has_no_lag(broker: BrokerProcess, topic: str) -> None:
    make(broker.kafka, topic)
    ConfluentDriver(broker.kafka).produce(topic, [Outgoing(value=b"hidden", headers=((DELAY, LATER),))] * 3)
    options = {"bootstrap.servers": broker.kafka, "group.id": topic, "auto.offset.reset": "earliest", **QUIET}
    consumer = Consumer({**options, "enable.auto.commit": False})
    consumer.subscribe([topic])
    try:

        def position() -> bool:
            assert consumer.poll(0.2) is None
            places = consumer.position(consumer.assignment())
            return bool(places) and places[0].offset == 3

        wait_until(position, "the consumer is behind the hidden records")
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({DELAY: b"soon"}, "is not a duration"),
        ({DELAY: b"30"}, "is not a duration"),
        ({DELAY: b"366d"}, "at most 365 days"),
        ({DELIVER_AT: b"tomorrow"}, "is not a time"),
        ({DELIVER_AT: b"2030-01-01T00:00:00"}, "no time zone"),
        ({DELIVER_AT: b"1794798807"}, "looks like seconds"),
        ({DELIVER_AT: b"9999999999999999"}, "at most 365 days"),
        ({DELAY_LEVEL: b"19"}, "is not a level"),
        ({DELAY_LEVEL: b"0"}, "is not a level"),
        ({DELAY: b"1s", DELAY_LEVEL: b"1"}, "two of"),
    ],
)
def test_a_delay_that_makes_no_sense_is_refused_with_the_record_that_has_it(
    broker: BrokerProcess, raw: RawClient, topic: str, headers: Mapping[str, bytes], said: str
) -> None:
    make(broker.kafka, topic)
    plain = Record(key=None, value=b"fine", timestamp_ms=now_ms())
    bad = Record(key=None, value=b"bad", headers=tuple(headers.items()), timestamp_ms=now_ms())
    data = PartitionProduceData(index=0, records=build_batch([plain, bad]))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
    (answer,) = raw.ask(request, 9).responses[0].partition_responses
    assert answer.error_code == ErrorCode.INVALID_RECORD
    ((row, reason),) = [(one.batch_index, one.batch_index_error_message) for one in answer.record_errors]
    assert row == 1
    assert said in reason
    assert said in answer.error_message


def test_only_what_a_transaction_commits_is_scheduled(broker: BrokerProcess, topic: str) -> None:
    make(broker.kafka, topic)
    producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": topic, **QUIET})
    producer.init_transactions(20)
    for commits in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"delayed %d" % commits, headers={DELAY: b"300ms"})
        producer.produce(topic, b"plain %d" % commits)
        producer.flush(20)
        if commits:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    client = ConfluentDriver(broker.kafka)
    found = client.consume_from_start(topic, 2)
    assert [message.value for message in found] == [b"plain 1", b"delayed 1"]


def test_messages_are_listed_page_by_page_and_cancelled(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    make(broker.kafka, topic)
    client = ConfluentDriver(broker.kafka)
    sent = [
        Outgoing(key=b"k%d" % (number % 2), value=b"%d" % number, headers=((DELAY, b"%ds" % (60 - number)),))
        for number in range(10)
    ]
    client.produce(topic, [*sent, Outgoing(key=b"k0", value=b"soon", headers=((DELAY, b"900ms"),))])
    wait_until(lambda: ask(raw, topic, LIST, count_max=0).pending == 11, "all wait")
    first = ask(raw, topic, LIST, count_max=4)
    assert [one.offset for one in first.messages] == [10, 9, 8, 7]
    last = first.messages[-1]
    rest = ask(raw, topic, LIST, after_due_ms=last.due_ms, after_offset=last.offset, count_max=100)
    assert [one.offset for one in rest.messages] == [6, 5, 4, 3, 2, 1, 0]
    assert (rest.messages[0].key, rest.messages[0].value_bytes) == (b"k0", 1)
    done = ask(raw, topic, CANCEL, offsets=(3, 3, 77))
    assert {one.offset: one.was_pending for one in done.cancelled} == {3: True, 77: False}
    again = ask(raw, topic, CANCEL, offsets=(3,))
    assert not again.cancelled[0].was_pending
    by_key = ask(raw, topic, CANCEL_KEY, key=b"k0")
    assert sorted(one.offset for one in by_key.cancelled) == [0, 2, 4, 6, 8, 10]
    assert ask(raw, topic, LIST).pending == 4
    client.produce(topic, [Outgoing(value=b"after", headers=((DELAY, b"1s"),))])
    assert [message.value for message in client.consume_from_start(topic, 1)] == [b"after"]


def test_a_killed_broker_delivers_each_message_once(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    make(broker.kafka, "orders")
    client = ConfluentDriver(broker.kafka)
    count = 300
    client.produce(
        "orders",
        [Outgoing(value=b"%d" % number, headers=((DELAY, b"%dms" % (4 * number)),)) for number in range(count)],
    )
    for _ in range(3):
        broker.kill()
        broker.start()
    client = ConfluentDriver(broker.kafka)
    found = client.consume_from_start("orders", count)
    assert sorted(int(message.value) for message in found) == list(range(count))
    client.produce("orders", [Outgoing(value=b"end")])
    assert client.consume("orders", found[-1].offset + 1, 1)[0].value == b"end"
    assert broker.metric("penstock_delayed_pending") == 0


def test_it_can_be_switched_on_later_and_not_off(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    client = ConfluentDriver(broker.kafka)
    client.create_topic(topic)
    client.produce(topic, [Outgoing(value=b"before", headers=((DELAY, LATER),))])
    client.alter_configs(topic, {"delayed.messages": "true"})
    client.produce(topic, [Outgoing(value=b"after", headers=((DELAY, SOON),)), Outgoing(value=b"plain")])
    found = client.consume_from_start(topic, 3)
    assert [message.value for message in found] == [b"before", b"plain", b"after"]
    with refused(client, ErrorCode.INVALID_CONFIG):
        client.alter_configs(topic, {"delayed.messages": "false"})


@pytest.mark.parametrize("configs", [{"cleanup.policy": "compact"}, {"storage": "memory"}], ids=str)
def test_compacted_and_memory_topics_are_refused(broker: BrokerProcess, topic: str, configs: dict[str, str]) -> None:
    client = ConfluentDriver(broker.kafka)
    with refused(client, ErrorCode.INVALID_CONFIG):
        wanted = NewTopic(topic, 1, config={"delayed.messages": "true", **configs})
        (made,) = client.admin.create_topics([wanted]).values()
        made.result(20)
    make(broker.kafka, topic)
    with refused(client, ErrorCode.INVALID_CONFIG):
        client.alter_configs(topic, {"cleanup.policy": "compact"})


def test_every_record_of_a_topic_can_be_held_back(admin_client: AdminDriver, broker: BrokerProcess) -> None:
    topic = f"held-{admin_client.name}"
    client = ConfluentDriver(broker.kafka)
    wanted = NewTopic(topic, 1, config={"delivery.delay.ms": "900"})
    (made,) = client.admin.create_topics([wanted]).values()
    made.result(20)
    began_s = time.monotonic()
    admin_client.produce(topic, [Outgoing(value=b"%d" % number) for number in range(5)])
    assert admin_client.range(topic) == (0, 0) or time.monotonic() - began_s >= 0.9
    found = admin_client.consume_from_start(topic, 5)
    assert time.monotonic() - began_s >= 0.9
    assert [message.value for message in found] == [b"%d" % number for number in range(5)]
    assert admin_client.range(topic) == (0, 5)


def test_delayed_messages_are_not_trimmed(broker: BrokerProcess, topic: str) -> None:
    client = ConfluentDriver(broker.kafka)
    client.create_topic(topic, configs={"delivery.delay.ms": "1000"})
    client.produce(topic, [Outgoing(value=b"x")] * 5)
    wait_until(lambda: client.range(topic) == (0, 5), "all can be seen")
    client.alter_configs(topic, {"delivery.delay.ms": "600000"})
    client.produce(topic, [Outgoing(value=b"y")] * 5)
    with refused(client, ErrorCode.OFFSET_OUT_OF_RANGE):
        client.trim(topic, 7)
    assert client.trim(topic, -1) == 5
    assert client.range(topic) == (5, 5)
    client.alter_configs(topic, {"delivery.delay.ms": "0"})
    assert [message.value for message in client.consume_from_start(topic, 5)] == [b"y"] * 5


def test_delayed_messages_stay_delayed_when_the_broker_is_killed(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    client = ConfluentDriver(broker.kafka)
    (made,) = client.admin.create_topics([NewTopic("held", 1, config={"delivery.delay.ms": "4000"})]).values()
    made.result(20)
    began_s = time.monotonic()
    client.produce("held", [Outgoing(value=b"one")])
    broker.kill()
    broker.start()
    client = ConfluentDriver(broker.kafka)
    assert [message.value for message in client.consume_from_start("held", 1)] == [b"one"]
    assert time.monotonic() - began_s >= 4


def test_the_python_api_delays_messages(broker: BrokerProcess, topic: str) -> None:
    make(broker.kafka, topic)
    with penstock.connect(broker.kafka) as mq:
        mq.publish(topic, "late", delay="800ms")
        mq.publish(topic, "soon", deliver_at=now_ms() + 300)
        with mq.transaction(f"tx-{topic}") as tx:
            tx.publish(topic, "in a transaction", delay=0.5)
        with pytest.raises(penstock.InvalidArgument, match="exclude each other"):
            mq.publish(topic, "?", delay="1s", deliver_at=now_ms())
    found: list[Message] = ConfluentDriver(broker.kafka).consume_from_start(topic, 3)
    assert [message.value for message in found] == [b"soon", b"in a transaction", b"late"]


def test_a_delayed_message_is_refused_where_nothing_is_held_back(broker: BrokerProcess, topic: str) -> None:
    """It would be delivered at once, without a visible reason."""
    ConfluentDriver(broker.kafka).create_topic(topic)
    with penstock.connect(broker.kafka) as mq:
        for delayed in ({"delay": "1h"}, {"deliver_at": now_ms() + 10_000}, {"headers": {DELAY: "1h"}}):
            with pytest.raises(penstock.InvalidArgument, match=f"topic alter {topic} --config delayed.messages=true"):
                mq.publish(topic, "late", **delayed)
        with pytest.raises(penstock.InvalidArgument, match="at once"), mq.transaction(f"tx-{topic}") as tx:
            tx.publish(topic, "in a transaction", delay=60)
        with pytest.raises(penstock.InvalidArgument, match="at once"):
            mq.publish_many(topic, [penstock.Outgoing("many", delay=60)])
        mq.publish(topic, "now")
        ConfluentDriver(broker.kafka).alter_configs(topic, {"delayed.messages": "true"})
        mq.publish(topic, "late", delay="300ms")
    found: list[Message] = ConfluentDriver(broker.kafka).consume_from_start(topic, 2)
    assert [message.value for message in found] == [b"now", b"late"]


def test_the_async_api_refuses_it_too(broker: BrokerProcess, topic: str) -> None:
    ConfluentDriver(broker.kafka).create_topic(topic)

    async def publish() -> None:
        async with penstock.connect_async(broker.kafka) as mq:
            with pytest.raises(penstock.InvalidArgument, match="at once"):
                await mq.publish(topic, "late", delay="1h")
            with pytest.raises(penstock.InvalidArgument, match="at once"):
                async with mq.transaction(f"tx-{topic}") as tx:
                    await tx.publish(topic, "in a transaction", delay=60)
            await mq.publish(topic, "now")

    asyncio.run(publish())


def test_delayed_messages_are_deleted_with_their_topic_with_a_warning(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker()
    make(broker.kafka, "orders")
    client = ConfluentDriver(broker.kafka)
    client.produce("orders", [Outgoing(value=b"x", headers=((DELAY, LATER),))] * 7)
    wait_until(lambda: broker.metric("penstock_delayed_pending") == 7, "all wait")
    client.delete_topic("orders")
    wait_until(lambda: "delayed_messages_dropped partition=orders-0 count=7" in broker.log, "it is said")


def test_queues_and_share_groups_do_not_go_together_with_it(broker: BrokerProcess, topic: str) -> None:
    make(broker.kafka, topic)
    with penstock.connect(broker.kafka) as mq, pytest.raises(penstock.PenstockError, match=r"delayed\.messages"):
        mq.create_queue(f"queue-{topic}", from_topic=topic)


def test_retention_waits_for_what_is_not_copied_and_takes_the_rest(broker: BrokerProcess, topic: str) -> None:
    make(broker.kafka, topic)
    client = ConfluentDriver(broker.kafka)
    client.produce(topic, [Outgoing(value=b"x", headers=((DELAY, b"1500ms"),))] * 3)
    wait_until(lambda: client.trim(topic, 3) == 3, "they are copied")
    found = client.consume_from_start(topic, 3)
    assert [message.offset for message in found] == [3, 4, 5]


def test_the_producer_of_a_refused_message_gets_an_error(broker: BrokerProcess, topic: str) -> None:
    make(broker.kafka, topic)
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.kafka, **QUIET})
    producer.produce(topic, b"x", headers={DELAY: b"never"}, on_delivery=lambda error, _: failed.append(error))
    producer.flush(20)
    assert [error.code() for error in failed] == [KafkaError.INVALID_RECORD]

"""Views with real clients: they return exactly the matching records, at their own offsets."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.foundation.codes import ErrorCode
from penstock.records.batch import batches
from tests.brokers import BrokerProcess

from .driver_aiokafka import AiokafkaDriver
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver
from .drivers import COMPRESSIONS, NOW_MS, AdminDriver, Driver, Message, Outgoing, refused
from .group_members import KINDS, crew, places_of
from .raw import RawClient
from .transactional_producers import READ_COMMITTED, READ_UNCOMMITTED
from .waiting import PATIENCE_S, wait_until

TAGS = (b"eu", b"us", b"uk")
EXPRESSION = "tag IN ('eu', 'uk') AND priority > 3"


def message(number: int, **options: Any) -> Outgoing:
    headers = (("tag", TAGS[number % 3]), ("priority", b"%d" % (number % 8)))
    return Outgoing(
        key=b"k%d" % number, value=b'{"n": %d}' % number, headers=headers, timestamp_ms=NOW_MS + number, **options
    )


def is_wanted(number: int) -> bool:
    return TAGS[number % 3] in (b"eu", b"uk") and number % 8 > 3


def view_of(driver: Any, topic: str, where: str, name: str = "", **configs: str) -> str:
    name = name or f"{topic}-view"
    driver.create_topic(name, configs={"view.of": topic, "view.where": where, **configs})
    return name


def shown(found: Sequence[Message]) -> list[tuple[int, bytes | None]]:
    return [(each.offset, each.value) for each in found]


# -- reading


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_client_reads_what_matches_at_its_own_offset(
    client: Driver, confluent: ConfluentDriver, topic: str, compression: str
) -> None:
    confluent.create_topic(topic)
    for start in range(0, 200, 40):
        confluent.produce(topic, [message(number) for number in range(start, start + 40)], compression=compression)
    view = view_of(confluent, topic, EXPRESSION)
    wanted = [number for number in range(200) if is_wanted(number)]
    found = client.consume_from_start(view, len(wanted))
    assert shown(found) == [(number, message(number).value) for number in wanted]
    assert found[3].key == message(wanted[3]).key
    assert dict(found[3].headers) == dict(message(wanted[3]).headers)
    assert found[3].timestamp_ms == NOW_MS + wanted[3]
    middle = next(number for number in range(100, 200) if not is_wanted(number))  # in a gap
    later = [number for number in wanted if number > middle]
    assert shown(client.consume(view, middle, len(later))) == [(each, message(each).value) for each in later]
    assert client.range(view) == (0, 200)
    assert client.offset_at(view, NOW_MS + 77) == 77


def test_every_client_reads_what_comes_later(client: Driver, confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    view = view_of(confluent, topic, "tag = 'eu'")
    confluent.produce(topic, [message(number) for number in range(30)])

    def when_ready() -> None:
        confluent.produce(topic, [message(number) for number in range(30, 60)])

    assert [each.offset for each in client.consume_new(view, 10, when_ready)] == list(range(30, 60, 3))


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
@pytest.mark.parametrize("driver", [ConfluentDriver, AiokafkaDriver, KafkaPythonDriver], ids=lambda each: each.name)
def test_read_committed_skips_aborted_records(
    driver: type[Any], isolation: str, broker: BrokerProcess, confluent: ConfluentDriver, topic: str
) -> None:
    confluent.create_topic(topic)
    view = view_of(confluent, topic, "tag = 'eu'")
    producer = confluent.producer(transactional_id=topic, compression_type="zstd")
    producer.init_transactions(PATIENCE_S)
    expected, offset = [], 0
    for turn in range(8):
        producer.begin_transaction()
        for number in range(6):
            # In some of the aborted transactions nothing matches: their ends must do no harm to those that follow.
            tag = b"us" if number % 2 or turn == 3 else b"eu"
            producer.produce(topic, value=b"%d-%d" % (turn, number), headers=[("tag", tag)], partition=0)
            if tag == b"eu" and (turn % 2 == 0 or isolation == READ_UNCOMMITTED):
                expected.append((offset, b"%d-%d" % (turn, number)))
            offset += 1
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if turn % 2 == 0 else producer.abort_transaction)(PATIENCE_S)
        offset += 1  # the marker
    confluent.produce(topic, [Outgoing(value=b"end", headers=(("tag", b"eu"),))])
    expected.append((offset, b"end"))
    options = {"isolation_level": isolation}
    if driver is ConfluentDriver:
        options = {"isolation.level": isolation}
    assert shown(driver(broker.kafka).consume(view, 0, len(expected), **options)) == expected


def test_read_committed_does_not_return_open_transactions(
    confluent: ConfluentDriver, raw: RawClient, topic: str
) -> None:
    confluent.create_topic(topic)
    view = view_of(confluent, topic, "tag = 'eu'")
    confluent.produce(topic, [Outgoing(value=b"a", headers=(("tag", b"eu"),))])
    producer = confluent.producer(transactional_id=topic)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, value=b"b", headers=[("tag", b"eu")], partition=0)
    producer.flush(PATIENCE_S)
    answer = raw.fetch(view, 0, isolation_level=1, max_wait_ms=0)
    assert [header.next_offset for _, header in batches(answer.records)] == [1]
    assert (answer.last_stable_offset, answer.aborted_transactions) == (1, [])
    producer.abort_transaction(PATIENCE_S)
    answer = raw.fetch(view, 1, isolation_level=1, max_wait_ms=10_000, min_bytes=0)
    assert [header.is_control for _, header in batches(answer.records)] == [True]


def test_lag_shows_what_was_passed_over(confluent: ConfluentDriver, broker: BrokerProcess, topic: str) -> None:
    """A group that reads a view in which nothing matches is at the end, commits that, and has no lag."""
    confluent.create_topic(topic)
    view = view_of(confluent, topic, "tag = 'none'")
    confluent.produce(topic, [message(number) for number in range(100)])
    with confluent.consumer(group_id=topic, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(view, 0, 0)])
        end = consumer.poll(PATIENCE_S)
        assert end is not None
        assert end.error().code() == KafkaError._PARTITION_EOF
        (position,) = consumer.position([TopicPartition(view, 0)])
        assert position.offset == 100
        consumer.commit(offsets=[position], asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(view, 0)], PATIENCE_S)
        assert committed.offset == 100
        assert consumer.get_watermark_offsets(TopicPartition(view, 0)) == (0, 100)


# -- groups


@pytest.mark.parametrize("kind", KINDS)
def test_groups_share_the_partitions_of_a_view(group_broker: BrokerProcess, topic: str, kind: str) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic, partitions=3)
    view = view_of(driver, topic, EXPRESSION)
    driver.produce(topic, [message(number, partition=number % 3) for number in range(300)])
    wanted = {message(number).value for number in range(300) if is_wanted(number)}
    with crew(group_broker.kafka, topic, topics=(view,)) as members:
        members.join(kind)
        members.join(kind)
        members.wait_for_balance(places_of(view, 3))
        members.wait_for(len(wanted))
        assert set(members.got()) == wanted


def test_a_regular_expression_finds_views_but_not_those_of_one_reader(
    group_broker: BrokerProcess, topic: str
) -> None:
    driver = ConfluentDriver(group_broker.kafka)
    driver.create_topic(topic)
    view = view_of(driver, topic, "tag = 'eu'", f"{topic}-eu")
    hidden = view_of(driver, topic, "tag = 'eu'", f"{topic}-eu.where-{'0' * 16}", **{"view.idle.ms": "60000"})
    assert hidden not in driver.topics()
    assert view in driver.topics()
    driver.produce(topic, [message(number) for number in range(9)])
    with driver.consumer(group_id=topic, group_protocol="consumer", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([f"^{topic}-.*"])
        got = [consumer.poll(PATIENCE_S) for _ in range(3)]
        assert [(each.topic(), each.offset()) for each in got if each is not None] == [
            (view, 0),
            (view, 3),
            (view, 6),
        ]
        assert [place.topic for place in consumer.assignment()] == [view]


# -- what is refused


@pytest.mark.parametrize("admin_client", [ConfluentDriver], indirect=True)
def test_a_bad_expression_is_refused_with_the_place_marked(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic)
    with pytest.raises(admin_client.error) as refusal:
        view_of(admin_client, topic, "tag = 'eu' AND upper(tag) = 'EU'")
    assert admin_client.code_of(refusal.value) == ErrorCode.INVALID_CONFIG
    text = refusal.value.args[0].str()
    assert "there is no function 'upper'" in text
    assert text.splitlines()[-1].strip() == "^^^^^"
    assert f"{topic}-view" not in admin_client.topics()


def test_views_that_cannot_be_are_refused(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic, 2)
    view = view_of(admin_client, topic, "tag = 'eu'")
    assert admin_client.config(view, "view.of") == (topic, 1)
    assert admin_client.config(view, "view.where") == ("tag = 'eu'", 1)
    with refused(admin_client, ErrorCode.INVALID_TOPIC_EXCEPTION):
        view_of(admin_client, view, "tag = 'eu'")
    with refused(admin_client, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        view_of(admin_client, f"{topic}-missing", "tag = 'eu'")
    with refused(admin_client, ErrorCode.TOPIC_ALREADY_EXISTS):
        view_of(admin_client, topic, "tag = 'uk'")
    with refused(admin_client, ErrorCode.TOPIC_ALREADY_EXISTS):
        view_of(admin_client, topic, "tag = 'uk'", topic)
    with refused(admin_client, ErrorCode.TOPIC_ALREADY_EXISTS):
        admin_client.create_topic(view)
    with refused(admin_client, ErrorCode.INVALID_CONFIG):
        view_of(admin_client, topic, "tag = 'uk'", f"{topic}-2", **{"retention.ms": "1000"})
    with refused(admin_client, ErrorCode.INVALID_TOPIC_EXCEPTION):
        admin_client.create_topic(f"{topic}.where-{'0' * 16}")


def test_a_view_is_only_read(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic, 2)
    view = view_of(admin_client, topic, "tag = 'eu'")
    # kafka-python does not raise here: it returns the text of the error.
    with pytest.raises((admin_client.error, AssertionError)):
        admin_client.alter_configs(view, {"retention.ms": "1000"})
    with refused(admin_client, ErrorCode.POLICY_VIOLATION):
        admin_client.trim(view, 0)
    assert view in admin_client.topics()
    admin_client.delete_topic(view)
    assert view not in admin_client.topics()
    assert topic in admin_client.topics()


def test_producing_to_a_view_fails_without_retries(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    view = view_of(confluent, topic, "tag = 'eu'")
    for options in ({}, {"enable_idempotence": True}):
        producer, errors = confluent.producer(**options), []
        producer.produce(view, value=b"x", on_delivery=lambda error, _, errors=errors: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0
        assert [error.code() for error in errors] == [ErrorCode.POLICY_VIOLATION]


def test_a_transaction_does_not_reach_a_view(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    view = view_of(confluent, topic, "tag = 'eu'")
    producer, errors = confluent.producer(transactional_id=topic), []
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, value=b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors == [None]
    producer.produce(view, value=b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors[1] is not None
    producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, value=b"y")
    producer.commit_transaction(PATIENCE_S)


# -- what becomes of them


def test_a_view_goes_with_its_topic(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    confluent.create_topic(topic)
    view = view_of(confluent, topic, "tag = 'eu'")
    confluent.delete_topic(topic)
    assert not {topic, view} & confluent.topics()
    assert raw.fetch(view, 0).error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
    confluent.create_topic(view)  # its name is free again


def test_views_are_there_after_a_restart_and_read_what_was_written_since(own_broker: Any, topic: str) -> None:
    broker = own_broker()
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic)
    view = view_of(driver, topic, "$.n >= 50 AND tag = 'eu'")
    driver.produce(topic, [message(number) for number in range(100)])
    broker.kill()
    broker.start()
    driver.produce(topic, [message(number) for number in range(100, 120)])
    wanted = [number for number in range(50, 120) if number % 3 == 0]
    assert [each.offset for each in driver.consume_from_start(view, len(wanted))] == wanted


def test_a_view_of_what_retention_and_compaction_left(confluent: ConfluentDriver, topic: str) -> None:
    compacting = {
        "cleanup.policy": "compact,delete",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
        "max.compaction.lag.ms": "1",
    }
    confluent.create_topic(topic, configs=compacting)
    view = view_of(confluent, topic, "tag = 'eu'")
    began_ms = int(time.time() * 1000) - 60_000
    for turn in range(4):
        rows = [
            Outgoing(
                key=b"k%d" % (number % 5),
                value=b"%d-%d" % (turn, number),
                headers=(("tag", TAGS[number % 3]),),
                timestamp_ms=began_ms + 1000 * turn,
            )
            for number in range(30)
        ]
        confluent.produce(topic, rows, compression="lz4")
    # Later by its time, however fast all this is: so it has a segment of its own, and all before it are compacted.
    last = [Outgoing(key=b"last", value=b"last", headers=(("tag", b"eu"),), timestamp_ms=began_ms + 5000)]
    confluent.produce(topic, last)
    confluent.trim(topic, 35)

    def is_compacted() -> bool:
        with confluent.consumer() as consumer:
            consumer.assign([TopicPartition(topic, 0, 35)])
            return len([each for each in consumer.consume(20, 1.0) if each.error() is None]) < 15

    wait_until(is_compacted, "compaction")
    whole = read_all(confluent, topic, 121)
    assert read_all(confluent, view, 121) == [each for each in whole if dict(each.headers)["tag"] == b"eu"]
    assert confluent.range(view)[0] == confluent.range(topic)[0]


def read_all(driver: ConfluentDriver, topic: str, end: int) -> list[Message]:
    """Everything from the first offset on; positions must come to the end."""
    with driver.consumer(enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, driver.range(topic)[0])])
        found = list(_until_end(consumer))
        (position,) = consumer.position([TopicPartition(topic, 0)])
        assert position.offset == end
        return found


def _until_end(consumer: Consumer) -> Any:
    began_s = time.monotonic()
    while time.monotonic() - began_s < PATIENCE_S:
        each = consumer.poll(1.0)
        if each is not None and each.error() is not None:
            assert each.error().code() == KafkaError._PARTITION_EOF
            return
        if each is not None:
            headers = tuple(each.headers() or ())
            yield Message(each.offset(), each.timestamp()[1], each.key(), each.value(), headers)
    raise AssertionError("the end did not come")


def test_a_view_of_one_subscription_is_deleted_when_it_is_not_read(own_broker: Any, topic: str) -> None:
    driver = ConfluentDriver(own_broker().kafka)
    driver.create_topic(topic)
    name = f"{topic}.where-{'a' * 16}"
    view_of(driver, topic, "tag = 'eu'", name, **{"view.idle.ms": "1000"})
    driver.produce(topic, [message(0)])
    with driver.consumer() as consumer:
        consumer.assign([TopicPartition(name, 0, 0)])
        assert consumer.poll(PATIENCE_S).offset() == 0
        until_s = time.monotonic() + 2.5
        while time.monotonic() < until_s:
            assert consumer.poll(0.2) is None  # it is read, and stays
        assert driver.config(name, "view.of")[0] == topic
    wait_until(lambda: _is_gone(driver, name), "the view to be dropped")


def _is_gone(driver: ConfluentDriver, name: str) -> bool:
    try:
        driver.config(name, "view.of")
    except driver.error:
        return True
    return False

"""Retention by size, time and key, and in memory; and consumers at offsets that are gone."""

import time
from collections.abc import Callable

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.records.build import Record, build_batch
from penstock.records.compression import Codec
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .drivers import NOW_MS, Driver, Outgoing
from .one_batch_a_fetch import consume_one_batch_a_fetch
from .raw import RawClient, batch_of, records_of
from .waiting import wait_until

KIB = 1 << 10
MIB = 1 << 20
HOUR_MS = 3_600_000


# -- by size and by time


@pytest.fixture(scope="module")
def bounded(broker: BrokerProcess) -> str:
    """A topic of which most is gone, because it may not take more than some bytes."""
    topic = "kept-by-size"
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic(topic, configs={"segment.bytes": "4096", "retention.bytes": "16384"})
    with RawClient(broker.address) as raw:
        for number in range(100):
            assert raw.produce(topic, batch_of([b"%03d" % number + bytes(KIB - 100)])).base_offset == number
        wait_until(lambda: raw.fetch(topic, 99).log_start_offset > 75, "old segments go")
    return topic


def test_a_topic_keeps_about_as_many_bytes_as_it_may(client: Driver, bounded: str) -> None:
    first, end = client.range(bounded)
    assert end == 100
    assert first <= 88, "at least retention.bytes are kept"
    got = client.consume_from_start(bounded, 100 - first)
    assert [message.offset for message in got] == list(range(first, 100))
    assert [message.value[:3] for message in got] == [b"%03d" % number for number in range(first, 100)]


def test_a_topic_keeps_messages_as_long_as_it_should(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs={"retention.ms": str(HOUR_MS)})
    old = [Outgoing(value=b"old %d" % number, timestamp_ms=NOW_MS - 2 * HOUR_MS) for number in range(10)]
    confluent.produce(topic, old)
    wait_until(lambda: confluent.range(topic) == (10, 10), "old messages go")
    confluent.produce(topic, [Outgoing(value=b"new")])
    assert [(message.offset, message.value) for message in confluent.consume_from_start(topic, 1)] == [(10, b"new")]
    assert confluent.range(topic) == (10, 11)


def test_retention_does_not_delete_uncommitted_records(
    broker: BrokerProcess, confluent: ConfluentDriver, topic: str
) -> None:
    confluent.create_topic(topic, configs={"retention.ms": str(HOUR_MS), "delivery.delay.ms": "1500"})
    began_s = time.monotonic()
    confluent.produce(topic, [Outgoing(value=b"old", timestamp_ms=NOW_MS - 2 * HOUR_MS)])
    wait_until(lambda: f"event=retention partition={topic}-0" in broker.log, "the old message goes")
    assert time.monotonic() - began_s >= 1.5
    assert confluent.range(topic) == (1, 1)


@pytest.mark.slow
def test_nothing_goes_that_is_held_back_though_delayed_messages_are_kept_elsewhere(
    broker: BrokerProcess, confluent: ConfluentDriver, topic: str
) -> None:
    """How far those are copied is noted every ten seconds, and retention goes as far as that."""
    both = {"delayed.messages": "true", "delivery.delay.ms": "15000"}
    confluent.create_topic(topic, configs={"retention.ms": str(HOUR_MS), **both})
    began_s = time.monotonic()
    confluent.produce(topic, [Outgoing(value=b"old", timestamp_ms=NOW_MS - 2 * HOUR_MS)])
    wait_until(lambda: f"event=retention partition={topic}-0" in broker.log, "the old message goes", 60.0)
    assert time.monotonic() - began_s >= 15


def test_a_consumer_of_what_is_gone_goes_on_with_what_is_left(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs={"retention.ms": str(HOUR_MS)})
    confluent.produce(topic, [Outgoing(value=b"old", timestamp_ms=NOW_MS - 2 * HOUR_MS)])
    wait_until(lambda: confluent.range(topic) == (1, 1), "the old message goes")
    confluent.produce(topic, [Outgoing(value=b"new")])
    assert [message.value for message in confluent.consume(topic, 0, 1, auto_offset_reset="earliest")] == [b"new"]


def test_retention_that_is_altered_is_obeyed(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs={"retention.ms": "-1"})
    confluent.produce(topic, [Outgoing(value=b"old", timestamp_ms=NOW_MS - 1000 * HOUR_MS)])
    assert confluent.range(topic) == (0, 1)
    confluent.alter_configs(topic, {"retention.ms": str(HOUR_MS)})
    wait_until(lambda: confluent.range(topic) == (1, 1), "the old message goes")


# -- by key

COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "2048",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


def keyed(key: str, value: str | None, **options: int) -> bytearray:
    record = Record(key=key.encode(), value=None if value is None else value.encode(), timestamp_ms=NOW_MS)
    return build_batch([record], **options)


def roll(raw: RawClient, topic: str) -> None:
    """Write until what stands in the topic now lies in closed segments, which alone are compacted."""
    for number in range(4):
        assert raw.produce(topic, keyed(f"filler {number % 2}", "x" * KIB)).error_code == 0


def stored(raw: RawClient, topic: str, start: int = 0) -> dict[int, tuple[str, str | None]]:
    """Every record that a topic holds, by offset, without the fillers."""
    return {
        record.offset: (record.key.decode(), None if record.value is None else record.value.decode())
        for _, records in raw.batches(topic, start)
        for record in records
        if not record.key.startswith(b"filler")
    }


def empty_batches(raw: RawClient, topic: str) -> list[int]:
    return [header.base_offset for header, records in raw.batches(topic) if not records]


@pytest.fixture(scope="module")
def compacted(broker: BrokerProcess) -> str:
    """A topic with 100 messages under 5 keys, of which the last 5 are left."""
    topic = "kept-by-key"
    ConfluentDriver(broker.kafka).create_topic(topic, configs=COMPACT)
    with RawClient(broker.address) as raw:
        for first in range(0, 100, 10):
            records = [
                Record(key=b"key %d" % (number % 5), value=b"value %d" % number, timestamp_ms=NOW_MS)
                for number in range(first, first + 10)
            ]
            raw.produce(topic, build_batch(records, codec=Codec.GZIP if first % 20 else Codec.NONE))
        roll(raw, topic)
        last = {95 + number: (f"key {number}", f"value {95 + number}") for number in range(5)}
        wait_until(lambda: stored(raw, topic) == last, "only the last value of each key is left")
    return topic


def test_compaction_keeps_the_last_value_of_each_key(client: Driver, compacted: str) -> None:
    got = client.consume_from_start(compacted, 5 + 2)
    assert [(message.offset, message.key, message.value) for message in got[:5]] == [
        (95 + number, b"key %d" % number, b"value %d" % (95 + number)) for number in range(5)
    ]
    assert client.range(compacted) == (0, 104)


def test_a_consumer_may_begin_where_compaction_left_a_gap(client: Driver, compacted: str) -> None:
    assert client.consume(compacted, 50, 1)[0].offset == 95


def test_a_tombstone_goes_when_its_time_has_come(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    confluent.create_topic(topic, configs=COMPACT | {"delete.retention.ms": str(HOUR_MS)})
    raw.produce(topic, keyed("a", "1"))
    raw.produce(topic, keyed("b", "1"))
    raw.produce(topic, keyed("a", None))
    roll(raw, topic)
    wait_until(lambda: stored(raw, topic) == {1: ("b", "1"), 2: ("a", None)}, "the tombstone stands alone")
    assert [message.value for message in confluent.consume(topic, 0, 2)] == [b"1", None]
    confluent.alter_configs(topic, COMPACT)
    raw.produce(topic, keyed("a", None))
    roll(raw, topic)
    wait_until(lambda: (1 in stored(raw, topic)) and 2 not in stored(raw, topic), "the first tombstone goes")
    roll(raw, topic)
    wait_until(lambda: stored(raw, topic) == {1: ("b", "1")}, "the second tombstone goes")


def test_compaction_leaves_a_producers_memory_alone(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    """The last batch of an idempotent producer stays, if only as an empty one: it may be sent again."""
    confluent.create_topic(topic, configs=COMPACT)
    identity = {"producer_id": raw.producer_id(), "producer_epoch": 0}
    assert raw.produce(topic, keyed("a", "1", base_sequence=0, **identity)).base_offset == 0
    raw.produce(topic, keyed("a", "2"))
    roll(raw, topic)
    wait_until(lambda: stored(raw, topic) == {1: ("a", "2")}, "the older value goes")
    assert empty_batches(raw, topic) == [0]
    again = raw.produce(topic, keyed("a", "1", base_sequence=0, **identity))
    assert (again.error_code, again.base_offset) == (0, 0)


@pytest.fixture(scope="module")
def emptied(broker: BrokerProcess) -> str:
    """A topic that begins with five empty batches, each the last one of a producer."""
    topic = "emptied-by-compaction"
    ConfluentDriver(broker.kafka).create_topic(topic, configs=COMPACT)
    with RawClient(broker.address) as raw:
        for number in range(5):
            identity = {"producer_id": raw.producer_id(), "producer_epoch": 0, "base_sequence": 0}
            raw.produce(topic, keyed("a", f"{number}", **identity))
        raw.produce(topic, keyed("a", "last"))
        roll(raw, topic)
        wait_until(lambda: stored(raw, topic) == {5: ("a", "last")}, "all values but the last go")
        assert empty_batches(raw, topic) == [0, 1, 2, 3, 4]
    return topic


def test_every_client_gets_past_batches_that_compaction_emptied(client: Driver, emptied: str) -> None:
    """Even one that gets a single batch at a time, so that some answers hold nothing but an empty batch."""
    got = consume_one_batch_a_fetch(client, emptied, 3)
    assert (got[0].offset, got[0].value) == (5, b"last")
    assert got[2].offset > got[1].offset > 5


def test_a_topic_may_be_compacted_and_deleted_from(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    both = COMPACT | {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}
    confluent.create_topic(topic, configs=both)
    for number in range(3):
        old = Record(key=b"old", value=b"%d" % number, timestamp_ms=NOW_MS - 2 * HOUR_MS)
        raw.produce(topic, build_batch([old]))
    wait_until(lambda: confluent.range(topic) == (3, 3), "what is too old goes")
    raw.produce(topic, keyed("a", "1"))
    raw.produce(topic, keyed("a", "2"))
    roll(raw, topic)
    wait_until(lambda: stored(raw, topic, 3) == {4: ("a", "2")}, "the older value goes")


# -- in memory


def test_a_topic_in_memory_is_like_any_other_to_a_client(
    client: Driver, confluent: ConfluentDriver, topic: str
) -> None:
    confluent.create_topic(topic, configs={"storage": "memory"})
    sent = [Outgoing(key=b"k", value=b"%d" % number, headers=(("h", b"v"),)) for number in range(100)]
    client.produce(topic, sent, compression="lz4", idempotent=True)
    got = client.consume_from_start(topic, 100)
    assert [(message.offset, message.value, message.headers) for message in got] == [
        (number, message.value, message.headers) for number, message in enumerate(sent)
    ]
    assert client.consume(topic, 42, 1)[0].value == b"42"
    assert client.offset_at(topic, NOW_MS) == 0
    confluent.trim(topic, 10)
    assert client.range(topic) == (10, 100)


def test_a_topic_in_memory_is_bounded(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("small", configs={"storage": "memory", "retention.bytes": str(4 * MIB)})
    confluent.create_topic("default", configs={"storage": "memory"})
    large = batch_of([bytes(MIB - 200)])
    with RawClient(broker.address) as raw:
        for topic, bound, count in (("small", 4, 40), ("default", 64, 100)):
            before_kib = broker.rss_anon_kib()
            for number in range(count):
                assert raw.produce(topic, large).base_offset == number
            assert broker.rss_anon_kib() - before_kib < (bound + 20) * KIB
            first, end = confluent.range(topic)
            assert end == count
            assert bound - 1 <= end - first <= bound + bound // 8 + 1
            assert records_of(raw.fetch(topic, first).records)[0].offset == first
    assert not list(broker.data_dir.glob(f"logs/{topic}/*/*.log"))


def test_a_topic_in_memory_begins_after_a_restart_above_every_offset_it_gave(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("quick", configs={"storage": "memory"})
    given = 0
    for end in (broker.stop, broker.kill, broker.kill):
        confluent.produce("quick", [Outgoing(value=b"%d" % number) for number in range(10)])
        first, end_offset = confluent.range("quick")
        assert end_offset == first + 10
        assert first >= given
        given = end_offset
        end()
        broker.start()
    first, end_offset = confluent.range("quick")
    assert first == end_offset >= given
    with RawClient(broker.address) as raw:
        assert raw.fetch("quick", given - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    confluent.produce("quick", [Outgoing(value=b"after")])
    assert [message.value for message in confluent.consume("quick", given, 1, auto_offset_reset="earliest")] == [
        b"after"
    ]

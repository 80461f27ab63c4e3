"""Rows as tasks return them to Spark, read from a real broker without Spark."""

import itertools
import json
import random
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as Place
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThanOrEqual, InputPartition, LessThan
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.client.errors import ConnectionFailed, ServerError
from penstock.foundation.errors import CorruptMessage
from penstock.spark.errors import BadOption, BadSchema, DataLost
from penstock.spark.reader import OffsetRangePartition
from penstock.spark.rows import BATCH_ROWS
from tests.brokers import BrokerProcess
from tests.clients.drivers import COMPRESSIONS, NOW_MS, Outgoing
from tests.clients.transactional_producers import ConfluentTransactor
from tests.clients.waiting import PATIENCE_S, wait_until

from .lab import SCHEMA, WITH_HEADERS, Lab, numbered, rows_of


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors tell Spark's worker to hide its traceback, by a variable: it is not to outlive the test."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def time_of(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


# -- what a row is


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_codec_is_read(lab: Lab, topic: str, compression: str) -> None:
    lab.create(topic)
    messages = [Outgoing(key=b"k%d" % n, value=b"v" * n, timestamp_ms=NOW_MS + n) for n in range(300)]
    lab.fill(topic, messages, compression=compression)
    assert lab.rows(topic) == [
        {
            "key": message.key,
            "value": message.value,
            "topic": topic,
            "partition": 0,
            "offset": n,
            "timestamp": time_of(NOW_MS + n),
            "timestampType": 0,
        }
        for n, message in enumerate(messages)
    ]


def test_nulls_and_empty_bytes_are_not_the_same(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, [Outgoing(key=None, value=b""), Outgoing(key=b"", value=None)])
    assert [(row["key"], row["value"]) for row in lab.rows(topic)] == [(None, b""), (b"", None)]


def test_headers_are_returned_on_request_and_null_where_there_are_none(lab: Lab, topic: str) -> None:
    lab.create(topic)
    headers = (("a", b"1"), ("a", b""), ("ü", b"\xff"))
    lab.fill(topic, [Outgoing(value=b"with", headers=headers), Outgoing(value=b"without")])
    assert "headers" not in lab.rows(topic)[0]
    with_headers, without = lab.rows(topic, includeHeaders="true")
    assert with_headers["headers"] == [{"key": key, "value": value} for key, value in headers]
    assert without["headers"] is None


def test_the_timestamp_type_says_whether_it_is_the_brokers(lab: Lab, topic: str) -> None:
    lab.create(topic, message_timestamp_type="LogAppendTime")
    lab.fill(topic, [Outgoing(value=b"x", timestamp_ms=1)])
    (row,) = lab.rows(topic)
    assert row["timestampType"] == 1
    assert row["timestamp"] > time_of(NOW_MS - 60_000)


def test_batches_have_just_the_types_that_spark_expects(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 1)
    for schema, headers in ((SCHEMA, "false"), (WITH_HEADERS, "true")):
        reader = lab.reader(topic, includeHeaders=headers)
        (partition,) = reader.partitions()
        (batch,) = reader.read(partition)
        assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize("nullable", [False, True])
def test_only_the_columns_of_a_schema_of_ones_own_are_read(lab: Lab, topic: str, nullable: bool) -> None:
    lab.create(topic)
    lab.fill(topic, 2)
    wanted = StructType().add("offset", "long", nullable).add("value", "binary")
    reader = lab.source(lab.options(topic)).reader(wanted)
    assert rows_of(reader) == [{"offset": 0, "value": b"value 0"}, {"offset": 1, "value": b"value 1"}]
    (batch,) = reader.read(reader.partitions()[0])
    assert batch.schema.equals(to_arrow_schema(wanted, timezone="UTC"))


def test_columns_that_do_not_exist_are_refused(lab: Lab, topic: str) -> None:
    source = lab.source(lab.options(topic))
    with pytest.raises(BadSchema, match="the source has no column value of type string; omit the schema, or use"):
        source.reader(StructType().add("value", "string"))
    with pytest.raises(BadSchema, match="set the option includeHeaders to true"):
        source.reader(WITH_HEADERS)
    with pytest.raises(BadSchema, match="the column key as NOT NULL, but messages may have none"):
        source.reader(StructType().add("key", "binary", nullable=False))


def test_many_small_batches_and_one_large_one_come_in_handy_portions(lab: Lab, topic: str) -> None:
    lab.create(topic, max_message_bytes="8000000")
    for n in range(20):
        lab.fill(topic, numbered(50, 50 * n))
    lab.client.produce(topic, numbered(2 * BATCH_ROWS, 1000), compression="zstd")
    reader = lab.reader(topic)
    (partition,) = reader.partitions()
    batches = list(reader.read(partition))
    assert len(batches) < 20
    assert [row["offset"] for row in pa.Table.from_batches(batches).to_pylist()] == list(range(1000 + 2 * BATCH_ROWS))


def test_a_message_larger_than_the_fetch_size_is_read(lab: Lab, topic: str) -> None:
    lab.create(topic, max_message_bytes="3000000")
    large = [Outgoing(value=bytes([n]) * 1_500_000) for n in range(3)]
    lab.fill(topic, large)
    assert lab.values(topic, kafka__max__partition__fetch__bytes=1000) == [message.value for message in large]


# -- which rows


def test_a_span_may_begin_and_end_in_the_middle_of_a_batch(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 100, compression="lz4")
    offsets = lab.rows(
        topic, startingOffsets=f'{{"{topic}": {{"0": 33}}}}', endingOffsets=f'{{"{topic}": {{"0": 77}}}}'
    )
    assert [row["offset"] for row in offsets] == list(range(33, 77))


@pytest.mark.parametrize("tasks", [2, 7, 40])
def test_one_partition_is_read_by_as_many_tasks_as_are_wanted(lab: Lab, topic: str, tasks: int) -> None:
    lab.create(topic)
    lab.fill(topic, 333)
    reader = lab.reader(topic, minPartitions=tasks)
    assert len(reader.partitions()) == tasks
    assert [row["offset"] for row in rows_of(reader)] == list(range(333))


def test_no_task_reads_more_records_than_allowed(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 100)
    ranges = [partition.offset_range for partition in lab.reader(topic, maxRecordsPerPartition=30).partitions()]
    assert [each.size for each in ranges] == [25, 25, 25, 25]


def test_all_partitions_of_all_topics_that_match_are_read(lab: Lab, topic: str) -> None:
    for name in (f"{topic}-x", f"{topic}-y"):
        lab.create(name, 2)
        lab.fill(name, [*numbered(3), *numbered(3, partition=1)])
    lab.create(f"other-{topic}")
    both = {(f"{topic}-{name}", number) for name in "xy" for number in (0, 1)}
    for chosen in ({"subscribePattern": f"^{topic}-"}, {"subscribe": f"{topic}-x,{topic}-y"}):
        assert {(row["topic"], row["partition"]) for row in lab.rows(**chosen)} == both
    one = lab.rows(assign=f'{{"{topic}-x": [1]}}')
    assert {(row["topic"], row["partition"]) for row in one} == {(f"{topic}-x", 1)}


def test_times_choose_where_to_begin_and_to_end(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 10)
    assert len(lab.rows(topic, startingTimestamp=NOW_MS + 4)) == 6
    assert len(lab.rows(topic, startingTimestamp=NOW_MS + 4, endingTimestamp=NOW_MS + 6)) == 2
    by_partition = f'{{"{topic}": {{"0": {NOW_MS + 9}}}}}'
    assert len(lab.rows(topic, startingOffsetsByTimestamp=by_partition)) == 1
    assert len(lab.rows(topic, endingOffsetsByTimestamp=by_partition)) == 9
    assert len(lab.rows(topic, endingTimestamp=NOW_MS + 100)) == 10
    with pytest.raises(
        BadOption, match=r"has no record of \d+ ms or later; choose an earlier time, or set startingOffsets"
    ):
        lab.rows(topic, startingTimestamp=NOW_MS + 100)
    assert lab.rows(topic, startingTimestamp=NOW_MS + 100, startingOffsetsByTimestampStrategy="latest") == []


def test_an_empty_topic_has_no_rows(lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    reader = lab.reader(topic)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []  # what Spark makes of no partition at all


def test_filters_leave_out_what_is_not_asked_for(lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, [*numbered(20), *numbered(20, partition=1)])
    reader = lab.reader(topic, pushFilters="true")
    filters = [
        EqualTo(("partition",), 1),
        LessThan(("offset",), 15),
        GreaterThanOrEqual(("timestamp",), time_of(NOW_MS + 12)),
    ]
    assert list(reader.pushFilters(filters)) == filters[2:]
    (partition,) = reader.partitions()
    assert isinstance(partition, OffsetRangePartition)
    found = partition.offset_range
    assert (found.tp.partition, found.start, found.end) == (1, 12, 15)
    nothing = lab.reader(topic, pushFilters="true")
    assert list(nothing.pushFilters([GreaterThanOrEqual(("timestamp",), time_of(NOW_MS + 1000))]))
    assert nothing.partitions() == []


# -- transactions


def test_only_what_is_committed_is_read_unless_one_asks_for_all(lab: Lab, topic: str) -> None:
    lab.create(topic)
    producer = ConfluentTransactor(lab.bootstrap, f"tx-{topic}")
    other = ConfluentTransactor(lab.bootstrap, f"other-{topic}")
    for transactor, value, ends in ((producer, b"aborted", "abort"), (producer, b"committed", "commit")):
        transactor.begin()
        transactor.send(topic, value)
        transactor.flush()
        getattr(transactor, ends)()
    other.begin()
    other.send(topic, b"aborted among others")
    other.flush()
    lab.fill(topic, [Outgoing(value=b"plain")])
    producer.begin()
    producer.send(topic, b"committed again")
    producer.flush()
    producer.commit()
    other.send(topic, b"aborted among others")
    other.flush()
    other.abort()
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()
    lab.fill(topic, [Outgoing(value=b"behind an open transaction")])
    wait_until(lambda: lab.values(topic) == [b"committed", b"plain", b"committed again"], "the markers are written")
    assert lab.values(topic, isolation="read_uncommitted") == [
        b"aborted",
        b"committed",
        b"aborted among others",
        b"plain",
        b"committed again",
        b"aborted among others",
        b"open",
        b"behind an open transaction",
    ]
    # A fetch that begins within an aborted transaction must not show its rest.
    inside = f'{{"{topic}": {{"0": 5}}}}'
    assert lab.values(topic, startingOffsets=inside) == [b"plain", b"committed again"]
    assert lab.values(topic, minPartitions=5) == [b"committed", b"plain", b"committed again"]
    producer.commit()
    assert lab.values(topic)[-2:] == [b"open", b"behind an open transaction"]
    producer.close()
    other.close()


def test_a_compacted_topic_has_gaps_and_all_that_is_left_is_read(lab: Lab, topic: str) -> None:
    lab.create(
        topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100", segment_bytes="1000000"
    )
    for round_ in range(5):
        lab.fill(topic, [Outgoing(key=b"%d" % n, value=b"%d" % round_) for n in range(20)])
    ticks = itertools.count()

    def is_compacted() -> bool:
        # The active segment is never cleaned: later records close it. Their keys differ, so that none is removed
        # between the reads below.
        lab.fill(topic, [Outgoing(key=b"tick-%d" % next(ticks), value=b"")])
        return sum(not row["key"].startswith(b"tick") for row in lab.rows(topic)) == 20

    wait_until(is_compacted, "the topic is compacted", pause_s=0.2)
    rows = lab.rows(topic)
    offsets = [row["offset"] for row in rows]
    assert offsets == sorted(set(offsets))
    newest = {row["key"]: row["value"] for row in rows if not row["key"].startswith(b"tick")}
    assert newest == {b"%d" % n: b"4" for n in range(20)}
    assert [row["offset"] for row in lab.rows(topic, minPartitions=6)] == offsets


def test_any_span_of_anything_has_the_rows_that_a_kafka_client_reads(
    lab: Lab, topic: str, rng: random.Random
) -> None:
    lab.create(topic)
    producer = ConfluentTransactor(lab.bootstrap, f"tx-{topic}")
    for _ in range(30):
        count = rng.choice((1, 2, 30))
        if rng.random() < 0.5:
            messages = [
                Outgoing(
                    key=rng.choice((None, b"k")), value=rng.randbytes(rng.choice((0, 5, 3000))), timestamp_ms=NOW_MS
                )
                for _ in range(count)
            ]
            lab.fill(topic, messages, compression=rng.choice(COMPRESSIONS))
        else:
            producer.begin()
            for _ in range(count):
                producer.send(topic, rng.randbytes(5))
            rng.choice((producer.commit, producer.abort))()
    producer.begin()
    producer.send(topic, b"the last")
    producer.commit()
    end = wait_until(lambda: _end_if_settled(lab, topic), "the last marker is written")
    with lab.client.consumer(isolation_level="read_committed", enable_partition_eof=True) as consumer:
        consumer.assign([Place(topic, 0, 0)])
        expected = {}
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            expected[message.offset()] = (message.key(), message.value(), message.timestamp()[1])
    producer.close()
    assert len(expected) > 10
    for _ in range(15):
        first, last = sorted(rng.choices(range(end + 1), k=2))
        rows = lab.rows(
            topic,
            startingOffsets=json.dumps({topic: {"0": first}}),
            endingOffsets=json.dumps({topic: {"0": last}}),
            minPartitions=rng.choice((1, 3)),
            kafka__max__partition__fetch__bytes=rng.choice((100, 5000, 1_000_000)),
        )
        found = {
            row["offset"]: (row["key"], row["value"], round(row["timestamp"].timestamp() * 1000)) for row in rows
        }
        assert found == {offset: message for offset, message in expected.items() if first <= offset < last}
        assert len(found) == len(rows)


def _end_if_settled(lab: Lab, topic: str) -> int | None:
    """The end of the topic, once no transaction is open."""
    committed, all_there = (
        lab.stream(topic, isolation=level).initialOffset()[topic]["0"]
        for level in ("read_committed", "read_uncommitted")
    )
    return committed if committed == all_there else None


# -- what goes wrong


def test_a_bootstrap_list_that_does_not_answer_is_named_with_its_option() -> None:
    lab_options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "x", "fetchOffset.retryIntervalMs": "10ms"}
    from penstock.spark import PenstockDataSource

    reader = PenstockDataSource(CaseInsensitiveDict(lab_options)).reader(SCHEMA)
    with pytest.raises(
        ConnectionFailed, match=r"cannot reach 127\.0\.0\.1:1: .*; is a broker running there"
    ) as caught:
        reader.partitions()
    assert "kafka.bootstrap.servers" in str(caught.value)


def test_a_topic_that_does_not_exist_is_named_with_what_to_do(lab: Lab, topic: str) -> None:
    with pytest.raises(ServerError, match=f"there is no topic '{topic}'; create it with `penstock topic create"):
        lab.rows(topic)
    lab.create(topic, 2)
    with pytest.raises(ServerError, match=f"topic '{topic}' has 2 partitions, asked for partition 7"):
        lab.rows(assign=f'{{"{topic}": [0, 7]}}')


def test_every_partition_must_be_given_an_offset_and_no_other(lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    with pytest.raises(
        BadOption, match=f"must name exactly the partitions that are read: missing are {topic}-1; not read are x-0"
    ):
        lab.rows(topic, startingOffsets=f'{{"{topic}": {{"0": 1}}, "x": {{"0": 1}}}}')


def test_offsets_that_are_not_there_are_an_error_or_cut_off(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 20)
    lab.client.trim(topic, 5)
    wanted: dict[str, Any] = {
        "startingOffsets": f'{{"{topic}": {{"0": 2}}}}',
        "endingOffsets": f'{{"{topic}": {{"0": 99}}}}',
    }
    with pytest.raises(
        DataLost, match=f"partition {topic}-0 holds offsets 5 to 20, not 2. Set failOnDataLoss to false"
    ):
        lab.rows(topic, **wanted)
    assert [row["offset"] for row in lab.rows(topic, **wanted, failOnDataLoss="false")] == list(range(5, 20))


def test_a_start_past_the_end_is_refused(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 20)
    with pytest.raises(BadOption, match="would be read from offset 9 to 4: the start is past the end"):
        lab.rows(topic, startingOffsets=f'{{"{topic}": {{"0": 9}}}}', endingOffsets=f'{{"{topic}": {{"0": 4}}}}')


def test_records_trimmed_after_planning_are_an_error_or_skipped(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 20)
    strict, lenient = lab.reader(topic), lab.reader(topic, failOnDataLoss="false")
    planned, same = strict.partitions(), lenient.partitions()
    lab.client.trim(topic, 7)
    with pytest.raises(DataLost, match=f"partition {topic}-0 holds offsets 7 to 20, not 0 to 20 as planned"):
        rows_of(strict, planned)
    assert [row["offset"] for row in rows_of(lenient, same)] == list(range(7, 20))


def test_a_topic_that_is_made_again_after_planning_is_another_topic(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 20)
    strict, lenient = lab.reader(topic), lab.reader(topic, failOnDataLoss="false")
    planned, same = strict.partitions(), lenient.partitions()
    lab.client.delete_topic(topic)
    wait_until(lambda: topic not in lab.client.topics(), "the topic is gone")
    lab.create(topic)
    lab.fill(topic, 30)
    with pytest.raises(DataLost, match=f"partition {topic}-0 was recreated"):
        rows_of(strict, planned)
    assert rows_of(lenient, same) == []


def test_a_damaged_batch_is_named_by_its_place(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create(topic)
    lab.fill(topic, 10)
    broker.stop()
    (segment,) = [path for path in broker.data_dir.rglob("*.log") if b"value 3" in path.read_bytes()]
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"value 3", b"value X"))
    broker.start()
    with pytest.raises(CorruptMessage, match=re.escape(f"partition {topic}-0 is corrupt at offset 0")):
        lab.rows(topic)
    assert b"value X" in lab.values(topic, kafka__check__crcs="false")


def test_a_broker_that_is_killed_and_comes_back_costs_no_row(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create(topic)
    lab.fill(topic, [Outgoing(value=b"%01000d" % n) for n in range(20_000)])
    reader = lab.reader(topic, kafka__max__partition__fetch__bytes=100_000)
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    offsets = next(batches).column("offset").to_pylist()
    broker.kill()
    with ThreadPoolExecutor() as pool:
        back = pool.submit(broker.start)
        for batch in batches:
            offsets += batch.column("offset").to_pylist()
        back.result()
    assert offsets == list(range(20_000))


def test_a_reader_that_stops_early_leaves_no_thread_behind(lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, numbered(50_000))
    reader = lab.reader(topic, kafka__max__partition__fetch__bytes=20_000)
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    next(batches)
    assert any(thread.name.startswith("fetch ") for thread in threading.enumerate())
    batches.close()
    assert not any(thread.name.startswith("fetch ") for thread in threading.enumerate())

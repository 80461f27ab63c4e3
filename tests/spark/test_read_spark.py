"""Reading through Spark: batch queries, streaming queries, and error messages."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

import penstock.spark
from penstock.foundation.ids import TopicPartition
from penstock.spark.positions import read_positions
from penstock.spark.query_start import start_query
from tests.brokers import BrokerProcess
from tests.clients.drivers import NOW_MS, Outgoing
from tests.clients.waiting import wait_until

from .lab import SCHEMA, WITH_HEADERS, Lab, numbered

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
PATIENCE_S = 300.0


@pytest.fixture
def _filters_pushed(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSH_DOWN, "true")
    yield
    spark.conf.unset(PUSH_DOWN)


def available(frame: DataFrame, checkpoint: str, into: str) -> list[int]:
    """Run a query over what is there into a folder; all offsets that have ever come there, in order."""
    writer = frame.select("offset").writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = start_query(lambda: writer.trigger(availableNow=True).start(into))
    assert query.awaitTermination(PATIENCE_S)
    rows = frame.sparkSession.read.schema("offset BIGINT").parquet(into).collect()
    return sorted(row.offset for row in rows)


def processed(query: StreamingQuery, count: int) -> None:
    """Wait until a running query has taken so many rows."""
    seen: dict[int, int] = {}

    def look() -> bool:
        seen.update({progress["batchId"]: progress["numInputRows"] for progress in query.recentProgress})
        assert query.isActive, query.exception()
        return sum(seen.values()) >= count

    wait_until(look, f"{count} rows", PATIENCE_S, seen=seen)


# -- batch


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession, lab: Lab, topic: str) -> None:
    assert lab.load(spark, topic).schema == SCHEMA
    assert lab.load(spark, topic, includeHeaders="true").schema == WITH_HEADERS


def test_a_batch_query_reads_every_row_once(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, [*numbered(500), *numbered(300, partition=1)], compression="zstd")
    rows = lab.load(spark, topic, minPartitions=4, includeHeaders="true").orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [
        (p, n) for p, count in ((0, 500), (1, 300)) for n in range(count)
    ]
    assert bytes(rows[7].key) == b"7"
    assert bytes(rows[7].value) == b"value 7"
    assert rows[7].topic == topic
    assert rows[7].timestampType == 0
    assert rows[7].headers is None
    assert (
        lab.load(spark, topic).select((F.unix_millis("timestamp")).alias("ms")).agg(F.min("ms")).first()[0] == NOW_MS
    )


def test_a_query_sees_what_is_there_when_it_runs(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic)
    frame = lab.load(spark, topic)
    assert frame.count() == 0
    lab.fill(topic, 5)
    assert lab.load(spark, topic).count() == 5


@pytest.mark.usefixtures("_filters_pushed")
def test_pushed_filters_leave_out_no_row_that_passes(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, [*numbered(50), *numbered(50, partition=1)])

    def count(where: str | Column) -> int:
        return lab.load(spark, topic, pushFilters="true").where(where).count()

    assert count("partition = 1 AND offset >= 10 AND offset < 20") == 10
    assert count(F.col("timestamp") >= F.timestamp_millis(F.lit(NOW_MS + 40))) == 20
    assert count("offset IN (1, 3, 99) AND partition != 0") == 2
    assert count("offset = 5 OR partition = 1") == 51


@pytest.mark.usefixtures("_filters_pushed")
def test_a_frame_that_is_used_twice_has_all_its_rows_both_times(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    lab.fill(topic, [*numbered(5), *numbered(7, partition=1)])
    frame = lab.load(spark, topic)
    assert frame.where("partition = 1 AND offset > 2").count() == 4
    assert frame.where("partition = 0").union(frame.where("partition = 1")).count() == 12
    assert frame.count() == 12


@pytest.mark.usefixtures("_filters_pushed")
def test_pushed_filters_are_not_applied_again(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic, 2)
    frame = lab.load(spark, topic, pushFilters="true").where("partition = 1 AND offset > 3 AND key IS NOT NULL")
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "isnotnull(key" in plan
    assert "offset" not in plan.partition("Filter")[2].partition("\n")[0]


def test_filters_cannot_be_pushed_into_a_session_that_does_not_allow_it(
    spark: SparkSession, lab: Lab, topic: str
) -> None:
    lab.create(topic)
    with pytest.raises(AnalysisException, match=PUSH_DOWN):
        lab.load(spark, topic, pushFilters="true").where("offset > 3").collect()


def test_it_can_be_registered_by_hand_too(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 3)
    penstock.spark.register(spark)
    assert lab.load(spark, topic).count() == 3


def test_some_columns_can_be_read_alone(spark: SparkSession, lab: Lab, topic: str) -> None:
    lab.create(topic)
    lab.fill(topic, 3)
    frame = spark.read.format("penstock").schema("value BINARY").options(**lab.options(topic)).load()
    assert sorted(bytes(row.value) for row in frame.collect()) == [b"value 0", b"value 1", b"value 2"]


# -- streaming


def test_an_available_now_query_reads_everything_once_and_the_next_run_goes_on(
    spark: SparkSession, lab: Lab, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    lab.create(topic)
    lab.fill(topic, 10)
    group = f"group-{topic}"
    frame = lab.load_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, kafka__group__id=group)
    into = str(tmp_path / "out")
    assert available(frame, checkpoint, into) == list(range(10))
    # The last batch too, though Spark does not say when it is done with that.
    described = subprocess.run(
        [
            Path(sys.executable).with_name("penstock"),
            "group",
            "describe",
            group,
            "--bootstrap",
            lab.bootstrap,
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert json.loads(described.stdout)
    assert _committed(lab, group) == {TopicPartition(topic, 0): 10}
    offsets = sorted((Path(checkpoint) / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert [json.loads(path.read_text().splitlines()[-1]) for path in offsets] == [
        {topic: {"0": n}} for n in (4, 8, 10)
    ]
    lab.fill(topic, numbered(5, 10))
    assert available(frame, checkpoint, into) == list(range(15))


def _committed(lab: Lab, group: str) -> dict[TopicPartition, int]:
    from .test_read_progress import committed

    return committed(lab.bootstrap, group)


def test_a_running_query_finds_new_partitions_and_reports_how_far_it_is(
    spark: SparkSession, lab: Lab, topic: str, checkpoint: str
) -> None:
    lab.create(topic)
    lab.fill(topic, 10)
    frame = lab.load_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=6)
    query = start_query(frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start)
    try:
        processed(query, 10)
        lab.grow(topic, 2)
        lab.fill(topic, numbered(7, partition=1))
        processed(query, 17)
        last = wait_until(lambda: query.lastProgress, "progress")
        (source,) = last["sources"]
        assert read_positions(json.loads(source["latestOffset"])) == {
            TopicPartition(topic, 0): 10,
            TopicPartition(topic, 1): 7,
        }
        first = next(progress["sources"][0] for progress in query.recentProgress if progress["numInputRows"])
        assert [json.loads(first[name]) for name in ("endOffset", "latestOffset")] == [
            {topic: {"0": 6}},
            {topic: {"0": 10}},
        ]
    finally:
        query.stop()


@pytest.mark.slow
def test_a_broker_that_is_killed_in_the_middle_of_a_query_costs_no_row_and_doubles_none(
    spark: SparkSession, own_broker: Callable[..., BrokerProcess], topic: str, checkpoint: str, tmp_path: Path
) -> None:
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create(topic, 2)
    lab.fill(topic, [Outgoing(value=b"%0500d" % n, partition=n % 2) for n in range(20_000)])
    frame = lab.load_stream(spark, topic, startingOffsets="earliest", maxOffsetsPerTrigger=5000)
    into = str(tmp_path / "out")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(available, frame, checkpoint, into)
        wait_until(lambda: list(Path(checkpoint).glob("offsets/[0-9]*")), "the first batch is planned", PATIENCE_S)
        broker.kill()
        broker.start()
        assert running.result() == sorted([*range(10_000), *range(10_000)])


# -- what people see


def failed(error: PySparkException) -> str:
    """What a person reads, which is no stack trace of Java's or Python's."""
    text = str(error)
    assert "\tat org.apache" not in text
    assert "Traceback" not in text
    return text


def test_a_wrong_option_is_reported_when_the_frame_is_created(spark: SparkSession, lab: Lab, topic: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        lab.load(spark, topic, startingOfsets="earliest")
    assert "there is no option 'startingofsets' for reading; did you mean 'startingOffsets'" in failed(caught.value)


def test_a_missing_topic_is_reported_when_the_query_is_planned(spark: SparkSession, lab: Lab, topic: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        lab.load(spark, topic).collect()
    assert f"there is no topic '{topic}'; create it with `penstock topic create {topic}`" in failed(caught.value)


def test_an_unreachable_broker_is_reported_with_its_option(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "x", "fetchOffset.retryIntervalMs": "10"}
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("penstock").options(**options).load().collect()
    assert "cannot reach 127.0.0.1:1: connection refused; is a broker running there?" in failed(caught.value)


def test_a_damaged_batch_is_reported_by_its_task(
    spark: SparkSession, own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create(topic)
    lab.fill(topic, 10)
    broker.stop()
    (segment,) = [path for path in broker.data_dir.rglob("*.log") if b"value 3" in path.read_bytes()]
    segment.write_bytes(segment.read_bytes().replace(b"value 3", b"value X"))
    broker.start()
    with pytest.raises(PySparkException) as caught:
        lab.load(spark, topic).collect()
    assert f"partition {topic}-0 is corrupt at offset 0" in failed(caught.value)


@pytest.mark.slow
def test_a_checkpoint_of_another_topic_stops_the_query_with_the_cure(
    spark: SparkSession, lab: Lab, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        lab.create(f"{topic}-{name}")
        lab.fill(f"{topic}-{name}", 3)
    into = str(tmp_path / "out")
    available(lab.load_stream(spark, f"{topic}-a", startingOffsets="earliest"), checkpoint, into)
    with pytest.raises(StreamingQueryException) as caught:
        available(lab.load_stream(spark, f"{topic}-b", startingOffsets="earliest"), checkpoint, into)
    said = f"the checkpoint belongs to a query of {topic}-a, but this one reads {topic}-b; give it its own"
    assert said in failed(caught.value)


@pytest.mark.slow
def test_a_topic_that_is_deleted_under_a_query_stops_it_unless_that_is_allowed(
    spark: SparkSession, lab: Lab, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        lab.create(f"{topic}-{name}")
        lab.fill(f"{topic}-{name}", 3)
    both, into = f"{topic}-a,{topic}-b", str(tmp_path / "out")
    assert available(lab.load_stream(spark, both, startingOffsets="earliest"), checkpoint, into) == [0, 0, 1, 1, 2, 2]
    lab.client.delete_topic(f"{topic}-a")
    wait_until(lambda: f"{topic}-a" not in lab.client.topics(), "the topic is gone")
    lab.fill(f"{topic}-b", numbered(2, 3))
    with pytest.raises(StreamingQueryException) as caught:
        available(lab.load_stream(spark, both, startingOffsets="earliest"), checkpoint, into)
    assert f"partition {topic}-a-0 cannot be found any more. Set failOnDataLoss to false" in failed(caught.value)
    lenient = lab.load_stream(spark, both, startingOffsets="earliest", failOnDataLoss="false")
    assert available(lenient, checkpoint, into) == [0, 0, 1, 1, 2, 2, 3, 4]

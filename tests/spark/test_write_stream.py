"""`df.writeStream.format("penstock")` with real Spark: repeated batches, new checkpoints."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from penstock.spark.query_start import start_query
from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until

from .lab import Lab
from .write_lab import committed, open_transactions

ROUND_S = 300
"""What a query may take for what is there."""


@pytest.fixture
def target(lab: Lab, topic: str) -> str:
    return lab.create(f"{topic}-out", partitions=2)


def run(rows: DataFrame, lab: Lab, target: str, checkpoint: str, mode: str = "append", **options: str) -> str:
    """Run a query until it has read what is there; its id."""
    wanted = lab.options(**options) | {"topic": target, "checkpointLocation": checkpoint}
    writer = rows.writeStream.format("penstock").options(**wanted).outputMode(mode)
    query = start_query(writer.trigger(availableNow=True).start)
    try:
        assert query.awaitTermination(ROUND_S), "the query did not end"
    finally:
        query.stop()
    assert query.id
    return str(query.id)


def source(spark: SparkSession, lab: Lab, topic: str, **options: str) -> DataFrame:
    return lab.load_stream(spark, topic, startingOffsets="earliest", **options).selectExpr("key", "value")


def undo_last_commit(checkpoint: str) -> int:
    """As if the driver had died after the sink's decision and before Spark's own note of it."""
    notes = [path for path in Path(checkpoint, "commits").iterdir() if path.name.isdigit()]
    last = max(notes, key=lambda path: int(path.name))
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    last.unlink()
    return int(last.name)


def values(count: int) -> list[bytes]:
    return sorted(b"value %d" % number for number in range(count))


def test_a_stream_is_written_once_and_a_batch_that_comes_again_is_not_doubled(
    spark: SparkSession, lab: Lab, topic: str, target: str, checkpoint: str, broker: BrokerProcess
) -> None:
    lab.create(topic)
    lab.fill(topic, 3000)
    rows = source(spark, lab, topic, maxOffsetsPerTrigger="1000")
    query_id = run(rows, lab, target, checkpoint)
    assert sorted(committed(lab.bootstrap, target, 2)) == values(3000)
    assert undo_last_commit(checkpoint) == 2
    assert run(rows, lab, target, checkpoint) == query_id
    assert sorted(committed(lab.bootstrap, target, 2)) == values(3000)
    assert not open_transactions(broker.address, query_id)


@pytest.mark.slow
def test_with_at_least_once_a_batch_that_comes_again_is_doubled(
    spark: SparkSession, lab: Lab, topic: str, target: str, checkpoint: str
) -> None:
    lab.create(topic)
    lab.fill(topic, 100)
    rows = source(spark, lab, topic)
    run(rows, lab, target, checkpoint, delivery="at-least-once")
    undo_last_commit(checkpoint)
    run(rows, lab, target, checkpoint, delivery="at-least-once")
    assert sorted(committed(lab.bootstrap, target, 2)) == sorted(values(100) * 2)


@pytest.mark.slow
def test_a_checkpoint_that_is_deleted_and_made_again_is_another_query(
    spark: SparkSession, lab: Lab, topic: str, target: str, checkpoint: str
) -> None:
    lab.create(topic)
    lab.fill(topic, 100)
    rows = source(spark, lab, topic)
    first = run(rows, lab, target, checkpoint)
    shutil.rmtree(checkpoint)
    second = run(rows, lab, target, checkpoint)
    assert first != second
    assert json.loads(Path(checkpoint, "metadata").read_text())["id"] == second
    # Everything is read again from the start, and batch 0 of the new query is not taken for the old one's.
    assert sorted(committed(lab.bootstrap, target, 2)) == sorted(values(100) * 2)


@pytest.mark.slow
def test_two_queries_write_into_one_topic_at_a_time(
    spark: SparkSession, lab: Lab, topic: str, target: str, tmp_path: Path
) -> None:
    queries = []
    for number in range(2):
        name = lab.create(f"{topic}-{number}")
        lab.fill(name, 2000)
        rows = source(spark, lab, name, maxOffsetsPerTrigger="500")
        options = lab.options() | {"topic": target, "checkpointLocation": str(tmp_path / f"checkpoint-{number}")}
        writer = rows.writeStream.format("penstock").options(**options).trigger(availableNow=True)
        queries.append(start_query(writer.start))
    for query in queries:
        assert query.awaitTermination(ROUND_S)
    assert sorted(committed(lab.bootstrap, target, 2)) == sorted(values(2000) * 2)


@pytest.mark.slow
def test_a_task_that_fails_stops_the_query_and_leaves_nothing_open(
    spark: SparkSession, lab: Lab, topic: str, target: str, checkpoint: str, broker: BrokerProcess
) -> None:
    lab.create(topic)
    lab.fill(topic, 500)
    flag = Path(checkpoint).with_name("may-work")

    def fails_at_first(value):  # Spark makes something of annotations
        if bytes(value) == b"value 499" and not flag.exists():
            raise ValueError("not yet")
        return bytes(value)

    rows = source(spark, lab, topic).select(udf(fails_at_first, "binary")("value").alias("value"))
    with pytest.raises(StreamingQueryException, match="not yet"):
        run(rows, lab, target, checkpoint)
    wait_until(lambda: not open_transactions(broker.address), "the failed task's transaction is aborted")
    assert committed(lab.bootstrap, target, 2) == []
    flag.touch()
    run(rows, lab, target, checkpoint)
    assert sorted(committed(lab.bootstrap, target, 2)) == values(500)


@pytest.mark.slow
def test_an_aggregation_in_complete_mode_adds_its_whole_result_each_time(
    spark: SparkSession, lab: Lab, topic: str, target: str, checkpoint: str
) -> None:
    lab.create(topic)
    lab.fill(topic, 10)
    rows = source(spark, lab, topic).groupBy().count().selectExpr("cast(count AS STRING) AS value")
    run(rows, lab, target, checkpoint, mode="complete")
    lab.fill(topic, 10)
    run(rows, lab, target, checkpoint, mode="complete")
    assert sorted(committed(lab.bootstrap, target, 2)) == [b"10", b"20"]


@pytest.mark.slow
def test_a_broker_that_is_killed_while_a_query_runs_costs_no_row(
    spark: SparkSession, own_broker: Callable[..., BrokerProcess], topic: str, checkpoint: str
) -> None:
    broker = own_broker()
    lab = Lab(broker.kafka)
    lab.create(topic)
    lab.fill(topic, 4000)
    target = lab.create(f"{topic}-out", partitions=2)
    rows = source(spark, lab, topic, maxOffsetsPerTrigger="500")
    options = lab.options() | {"topic": target, "checkpointLocation": checkpoint}
    writer = rows.writeStream.format("penstock").options(**options).trigger(availableNow=True)
    query = start_query(writer.start)
    for batch in (1, 4):
        done = Path(checkpoint, "commits", str(batch))
        wait_until(done.exists, f"batch {batch} is done", timeout_s=ROUND_S)
        broker.kill()
        broker.start()
    assert query.awaitTermination(ROUND_S)
    assert sorted(committed(lab.bootstrap, target, 2)) == values(4000)

"""Spark reads a view: offsets have gaps, and no data is lost by that."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.clients.drivers import Outgoing

from .lab import Lab
from .test_read_spark import available


def tagged(start: int, count: int) -> list[Outgoing]:
    tags = (b"eu", b"us", b"us", b"us", b"us")
    return [
        Outgoing(value=b"%d" % number, headers=(("tag", tags[number % 5]),), partition=number % 2)
        for number in range(start, start + count)
    ]


def test_a_planned_range_of_a_view_is_read_with_its_gaps(lab: Lab, topic: str) -> None:
    """Without Spark: spans are cut by offsets, and most have little or nothing in them."""
    lab.create(topic, 2)
    view = lab.create(f"{topic}-eu", **{"view.of": topic, "view.where": "tag = 'eu'"})
    lab.fill(topic, tagged(0, 100), compression="zstd")
    rows = lab.rows(view, minPartitions=8, failOnDataLoss=True)
    assert sorted(int(row["value"]) for row in rows) == list(range(0, 100, 5))
    assert all(int(row["value"]) == 2 * row["offset"] + row["partition"] for row in rows)
    nothing = lab.create(f"{topic}-none", **{"view.of": topic, "view.where": "tag = 'none'"})
    assert lab.rows(nothing, minPartitions=8, failOnDataLoss=True) == []


def test_spark_reads_a_view_of_which_little_matches(
    spark: SparkSession, lab: Lab, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    lab.create(topic, 2)
    view = lab.create(f"{topic}-eu", **{"view.of": topic, "view.where": "tag = 'eu'"})
    lab.fill(topic, tagged(0, 100), compression="zstd")
    rows = (
        lab.load(spark, view, minPartitions=4, failOnDataLoss=True).select("partition", "offset", "value").collect()
    )
    assert sorted(int(row.value) for row in rows) == list(range(0, 100, 5))
    assert all(int(row.value) == 2 * row.offset + row.partition for row in rows)
    frame = lab.load_stream(spark, view, startingOffsets="earliest", failOnDataLoss=True).where("partition = 0")
    into = str(tmp_path / "rows")
    assert available(frame, checkpoint, into) == list(range(0, 50, 5))
    lab.fill(topic, tagged(100, 100))
    assert available(frame, checkpoint, into) == list(range(0, 100, 5))

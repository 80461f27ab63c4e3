"""The `replay` pipeline: writes messages of an archive back into a topic, in order, optionally at a fixed rate."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.clusters import describe_topics
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.lake_formats import find_lake
from penstock.spark.pipelines.options import choice, moment, names, number, option, text, topic, topics
from penstock.spark.pipelines.pipeline import CommonOptions, Need, Pipeline, Report, ReportTable, Run
from penstock.spark.pipelines.query_progress import Batch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OFFSETS_EACH: Final = 1000
"""Number of offsets per chunk: small enough for an even replay rate, large enough to limit the number of chunks."""
SLICE_S: Final = 2.0
"""Seconds that the messages of one slice (one atomic write) take at the configured rate."""


class NothingToReplay(PenstockError):
    """The archive has no matching messages, or has messages of partitions that the target topic lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(CommonOptions):
    path: str = option(text, "The folder of the archive", metavar="FOLDER")
    to: str = option(topic, "The topic to write to")
    topics: tuple[str, ...] | None = option(topics, "Only messages of these topics", default=None)
    since: int | None = option(moment, "Only messages since this time", default=None)
    until: int | None = option(moment, "Only messages before this time", default=None)
    keys: tuple[str, ...] | None = option(names, "Only messages with these keys", default=None, metavar="KEY[,…]")
    where: str | None = option(text, "A condition: only matching messages", default=None, metavar="SQL")
    rate: int | None = option(number(1), "Messages per second; by default as fast as possible", default=None)
    partitions: str = option(
        choice("keep", "by-key"), "Whether messages keep their partition or are partitioned by key", default="keep"
    )


class Slice(NamedTuple):
    """The messages that one write replays: an offset range of each partition, and the total number of rows."""

    parts: Mapping[tuple[str, int], tuple[int, int]]
    rows: int


class Chunk(NamedTuple):
    """An offset range of one partition, with the number of its messages and its earliest timestamp."""

    topic: str
    partition: int
    first: int
    last: int
    rows: int
    at_ms: int


def plan(chunks: Sequence[Chunk], rows_each: int) -> list[Slice]:
    """Groups chunks into slices of about `rows_each` rows, in time order, and in offset order within a partition.

    >>> [slice.rows for slice in plan([Chunk("a", 0, 0, 9, 10, 5), Chunk("a", 1, 0, 9, 10, 4)], rows_each=10)]
    [10, 10]
    """
    slices: list[Slice] = []
    parts: dict[tuple[str, int], tuple[int, int]] = {}
    rows = 0
    for chunk in _order_chunks(chunks):
        name = chunk.topic, chunk.partition
        first = parts[name][0] if name in parts else chunk.first
        parts[name] = first, chunk.last
        rows += chunk.rows
        if rows >= rows_each:
            slices.append(Slice(parts, rows))
            parts, rows = {}, 0
    return [*slices, Slice(parts, rows)] if rows else slices


def _order_chunks(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Returns the chunks in time order, but in offset order within a partition: producers' clocks may be wrong."""
    latest: dict[tuple[str, int], int] = {}
    timed = []
    for chunk in sorted(chunks, key=lambda each: (each.topic, each.partition, each.first)):
        name = chunk.topic, chunk.partition
        latest[name] = max(chunk.at_ms, latest.get(name, chunk.at_ms))
        timed.append((latest[name], chunk))
    return [chunk for _, chunk in sorted(timed, key=lambda each: (each[0], each[1]))]


def _filter(options: ReplayOptions, frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as fn

    if options.topics is not None:
        frame = frame.where(fn.col("topic").isin(*options.topics))
    # Filter by date too, so that Spark skips whole folders.
    if options.since is not None:
        bound, day = _time_columns(options.since)
        frame = frame.where((fn.col("timestamp") >= bound) & (fn.col("date") >= day))
    if options.until is not None:
        bound, day = _time_columns(options.until)
        frame = frame.where((fn.col("timestamp") < bound) & (fn.col("date") <= day))
    if options.keys is not None:
        frame = frame.where(fn.col("key").cast("string").isin(*options.keys))
    return frame.where(options.where) if options.where is not None else frame


def _time_columns(at_ms: int) -> "tuple[Column, Column]":
    """Returns a time as two columns: a timestamp, and its date as text."""
    from pyspark.sql import functions as fn

    bound = fn.timestamp_millis(fn.lit(at_ms))
    return bound, fn.date_format(bound, "yyyy-MM-dd")


def _count_chunks(frame: "DataFrame") -> list[Chunk]:
    from pyspark.sql import functions as fn

    counted = frame.groupBy("topic", "partition", fn.floor(fn.col("offset") / OFFSETS_EACH).alias("chunk")).agg(
        fn.min("offset").alias("first"),
        fn.max("offset").alias("last"),
        fn.count("*").alias("rows"),
        fn.unix_millis(fn.min("timestamp")).alias("at_ms"),
    )
    return [
        Chunk(row["topic"], row["partition"], row["first"], row["last"], row["rows"], row["at_ms"])
        for row in counted.collect()
    ]


def _rows_of(frame: "DataFrame", part: Slice) -> "DataFrame":
    from pyspark.sql import functions as fn

    wanted = fn.lit(False)
    for (topic_name, partition), (first, last) in part.parts.items():
        is_here = (fn.col("topic") == topic_name) & (fn.col("partition") == partition)
        wanted = wanted | (is_here & fn.col("offset").between(first, last))
    return frame.where(wanted)


def _check(options: ReplayOptions) -> Iterator[Problem]:
    if options.since is not None and options.until is not None and options.since >= options.until:
        yield Problem(options.locations.of("until"), "until: it must be later than since")


def _needs(options: ReplayOptions) -> Iterator[Need]:
    at = options.locations
    yield Need(bootstrap=options.bootstrap, location=at.of("bootstrap"), topics={options.to: at.of("to")})


def _run(options: ReplayOptions, run: Run) -> Report:
    run.on_step("scanning the archive")
    frame = _filter(options, find_lake(run.path(options.path)).read(run.spark))
    chunks = _count_chunks(frame)
    total = sum(chunk.rows for chunk in chunks)
    if not total:
        raise NothingToReplay(f"{run.path(options.path)} has no matching messages")
    target = describe_topics(options.bootstrap, [options.to])[options.to]
    keeps_partition = options.partitions == "keep"
    _check_partitions(options, chunks, len(target.partitions))
    # Without a rate all messages are one atomic write.
    slices = plan(chunks, total if options.rate is None else max(1, round(options.rate * SLICE_S)))
    began_s = time.monotonic()
    done = 0
    for count, part in enumerate(slices):
        if options.rate is not None and run.stopping.wait(max(0.0, began_s + done / options.rate - time.monotonic())):
            break
        slice_s = time.monotonic()
        _write(_rows_of(frame, part) if len(slices) > 1 else frame, options, keeps_partition)
        done += part.rows
        run.on_batch(_batch(count, part.rows, time.monotonic() - slice_s, total - done))
    elapsed_s = time.monotonic() - began_s
    rows = [(name, number, held) for (name, number), held in sorted(_by_partition(chunks).items())]
    return Report(
        verdict=f"{done} messages were replayed into {options.to}" + (f" of {total}" if done < total else ""),
        is_ok=done == total,
        facts={"messages": done, "seconds": round(elapsed_s, 1), "messages_per_second": round(done / elapsed_s)},
        tables=[ReportTable(title="replayed", columns=["TOPIC", "#PARTITION", "#MESSAGES"], rows=rows)],
    )


def _by_partition(chunks: Sequence[Chunk]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for chunk in chunks:
        name = chunk.topic, chunk.partition
        found[name] = found.get(name, 0) + chunk.rows
    return found


def _check_partitions(options: ReplayOptions, chunks: Sequence[Chunk], count: int) -> None:
    highest = max(chunk.partition for chunk in chunks)
    if options.partitions == "keep" and highest >= count:
        raise NothingToReplay(
            f"the archive has messages of partition {highest}, but {options.to!r} has only {count} partitions; "
            f"give it {highest + 1}, or partition messages by key with `-o partitions=by-key`"
        )


def _write(frame: "DataFrame", options: ReplayOptions, keeps_partition: bool) -> None:
    from pyspark.sql import functions as fn

    # One task writes all messages of a partition, or of a key, in order; those without a key by partition.
    by = (
        fn.col("partition")
        if keeps_partition
        else fn.coalesce(fn.col("key"), fn.col("partition").cast("string").cast("binary"))
    )
    ordered = frame.repartition(by).sortWithinPartitions("topic", "partition", "offset")
    columns = ["key", "value", "headers", *(["partition"] if keeps_partition else [])]
    writer = ordered.select(*columns).write.format("penstock").mode("append")
    writer.options(**{**options.bootstrap.options, "topic": options.to}).save()


def _batch(number: int, rows: int, seconds: float, left: int) -> Batch:
    return Batch(
        number=number,
        rows=rows,
        seconds=seconds,
        rows_per_s=rows / seconds if seconds else 0.0,
        lag=left,
        late_s=None,
        dropped=0,
        at_ms=round(time.time() * 1000),
    )


PIPELINE: Final = Pipeline(
    name="replay",
    summary="Writes messages of an archive back into a topic, by time, key or filter, at a set rate",
    about="""\
Messages keep their key, value and headers, and their order within the partition. Without a rate all messages are
written atomically; with a rate they are written in atomic slices of two seconds. After an interruption the report
shows how many messages were replayed.""",
    example="""\
penstock pipeline run replay -o path=lake/orders -o to=orders-again -o since=2026-01-31T12:00:00Z -o rate=500
""",
    options=ReplayOptions,
    needs=_needs,
    check=_check,
    run=_run,
)

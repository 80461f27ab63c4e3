"""Writes pipeline results to a topic, a lake or the terminal, and checks which pipeline owns a checkpoint."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.foundation.errors import PenstockError
from penstock.spark.connect import check_shared
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.clusters import create_topic
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.lake import FORMATS, PRIVATE_FOLDER, Lake, count_added, replace_synced
from penstock.spark.pipelines.lake_formats import open_lake
from penstock.spark.pipelines.options import (
    Locations,
    bootstrap,
    choice,
    locations,
    names,
    number,
    option,
    pairs,
    registry_urls,
    text,
    topic,
)
from penstock.spark.pipelines.pipeline import EXACTLY_ONCE, Need, Run, StreamOptions
from penstock.spark.pipelines.query_progress import Totals, watch
from penstock.spark.pipelines.typed_values import FORMATS as TYPED
from penstock.spark.pipelines.typed_values import check_registry, registry_options
from penstock.spark.query_start import start_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

ROWS_SHOWN: Final = 20
COLUMNS: Final = ("topic", "key", "value", "headers", "partition")
"""Names of result columns that each fill the part of a message with the same name."""


class WrongColumns(PenstockError):
    """The result lacks a column that the sink needs."""


class OtherCheckpoint(PenstockError):
    """The checkpoint belongs to another pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    topic: str | None = option(topic, "The topic to write to", default=None)
    create: int | None = option(number(1), "Create a missing topic with this many partitions", default=None)
    path: str | None = option(text, "The folder of the lake to write to", default=None, metavar="FOLDER")
    format: str = option(choice(*FORMATS), "The format of the lake", default="parquet")
    partition_by: tuple[str, ...] = option(names, "The partition columns of the lake", default=())
    bootstrap: Brokers | None = option(bootstrap, "Brokers, if other than the pipeline's", default=None)
    key: str | None = option(text, "The column for the message key", default=None, metavar="COLUMN")
    value: str = option(
        choice("json", "columns", *TYPED),
        "columns: uses the columns key, value, headers, partition; otherwise all columns but the key become a value "
        "of that format",
        default="json",
    )
    registry: str | None = option(
        registry_urls,
        "The schema registry, if other than the pipeline's; by default that of the brokers",
        default=None,
    )
    mode: str = option(
        choice("append", "update", "complete"), "Which rows of an aggregation each batch writes", default="append"
    )
    options: Mapping[str, str] = option(pairs, "More options of the data source, by their names", default={})
    locations: Locations = locations()


def check_sink(sink: Sink) -> Iterator[Problem]:
    if sink.topic is not None and sink.path is not None:
        yield Problem(sink.locations.table, "sink: topic and path are both set; set only one")
    yield from check_registry("sink", sink.value, sink.registry, sink.locations)
    for key in ("key", "create", "bootstrap"):
        if getattr(sink, key) is not None and sink.topic is None:
            yield Problem(sink.locations.of(key), f"sink: {key} requires a topic")
    if sink.partition_by and sink.path is None:
        yield Problem(sink.locations.of("partition_by"), "sink: partition_by requires a path")
    if sink.key is not None and sink.value == "columns":
        yield Problem(sink.locations.of("key"), "sink: with value: columns the key is the column 'key'")
    if sink.path is not None and sink.mode != "append":
        message = f"sink: mode {sink.mode} repeats rows, which a lake cannot update; use append with a watermark"
        yield Problem(sink.locations.of("mode"), message)


def sink_need(sink: Sink, default: Brokers) -> Need | None:
    if sink.topic is None:
        return None
    location = sink.locations.of("topic")
    wanted = {} if sink.create is not None else {sink.topic: location}
    return Need(bootstrap=sink.bootstrap or default, location=location, topics=wanted)


def messages(frame: "DataFrame", sink: Sink) -> "DataFrame":
    """Converts rows to keys and values of messages; if `sink.value` is `columns`, also to headers and partitions."""
    from pyspark.sql import functions as fn

    there = frame.columns
    if sink.value == "columns":
        if "value" not in there:
            raise WrongColumns(f"there is no column 'value' to write; the columns are {', '.join(there)}")
        return frame.select(*(name for name in COLUMNS if name in there and name != "topic"))
    if sink.key is not None and sink.key not in there:
        raise WrongColumns(f"there is no column {sink.key!r} for the key; the columns are {', '.join(there)}")
    fields = [name for name in there if name != sink.key]
    if not fields:
        raise WrongColumns("the key is the only column; add one for the value")
    record = fn.struct(*(fn.col(f"`{name}`") for name in fields))
    value = (record if sink.value in TYPED else fn.to_json(record)).alias("value")
    if sink.key is None:
        return frame.select(value)
    return frame.select(fn.col(f"`{sink.key}`").cast("string").alias("key"), value)


def topic_writer_options(sink: Sink, default: Brokers, delivery: str) -> dict[str, str]:
    brokers = sink.bootstrap or default
    return {
        **brokers.options,
        "topic": sink.topic or "",
        "delivery": delivery,
        **registry_options(sink.value, sink.registry, brokers),
        **sink.options,
    }


def start_topic(run: Run, frame: "DataFrame", sink: Sink, options: StreamOptions) -> Totals:
    """Streams rows into a topic until the query ends or is stopped. Returns the totals of the query."""
    if sink.create is not None and sink.topic is not None:
        create_topic(sink.bootstrap or options.bootstrap, sink.topic, sink.create)
    given = topic_writer_options(sink, options.bootstrap, options.delivery)
    rows = messages(frame, sink)
    if sink.mode == "update":
        return _start_updates(run, rows, given, options)
    return start(run, rows.writeStream.format("penstock").outputMode(sink.mode).options(**given), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUpdates:
    """The `foreachBatch` function of update mode, which Spark's Python sinks lack: each micro-batch is a batch write.
    With Spark Connect it runs in a Python process of the server, so it has only what can be pickled."""

    options: Mapping[str, str]
    query: str | None
    """The query id, under which each batch is written once; None: at least once."""

    def __call__(self, batch: "DataFrame", number: int) -> None:
        once = {} if self.query is None else {"txnAppId": self.query, "txnVersion": str(number)}
        batch.write.format("penstock").mode("append").options(**self.options, **once).save()


def _start_updates(run: Run, rows: "DataFrame", given: Mapping[str, str], options: StreamOptions) -> Totals:
    query = own_query(run, options) if options.delivery == EXACTLY_ONCE else None
    updates = TopicUpdates(options=given, query=query)
    return start(run, rows.writeStream.foreachBatch(updates).outputMode("update"), options)


def write_topic(frame: "DataFrame", sink: Sink, options: StreamOptions) -> None:
    """Writes all rows of a batch query into a topic; atomically if the delivery option is exactly-once."""
    if sink.create is not None and sink.topic is not None:
        create_topic(sink.bootstrap or options.bootstrap, sink.topic, sink.create)
    writer = messages(frame, sink).write.format("penstock").mode("append")
    writer.options(**topic_writer_options(sink, options.bootstrap, options.delivery)).save()


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeBatches:
    """The `foreachBatch` function that adds each micro-batch to a lake once. See TopicUpdates for where it runs."""

    lake: Lake
    partition_by: tuple[str, ...]
    query: str
    """The query id: a new checkpoint is a new query, whose batch ids start at 0 again."""

    def __call__(self, batch: "DataFrame", number: int) -> None:
        mark = f"penstock/query/{self.query}"
        before = self.lake.marks([mark])
        if before.get(mark, -1) < number:
            self.lake.commit(self.lake.write(batch, self.partition_by), {mark: number}, before)


def start_lake(run: Run, frame: "DataFrame", sink: Sink, options: StreamOptions) -> Totals:
    """Streams rows into a lake, each micro-batch exactly once. Returns the totals of the query."""
    batches = LakeBatches(
        lake=_prepare_lake(run, frame, sink), partition_by=sink.partition_by, query=own_query(run, options)
    )
    return start(run, frame.writeStream.foreachBatch(batches).outputMode(sink.mode), options)


def write_lake(run: Run, frame: "DataFrame", sink: Sink) -> int:
    """Adds the rows of a batch query to a lake; returns the number of added rows."""
    lake = _prepare_lake(run, frame, sink)
    files = lake.write(frame, sink.partition_by)
    lake.commit(files, {}, {})
    return count_added(files).rows


def _prepare_lake(run: Run, frame: "DataFrame", sink: Sink) -> Lake:
    lacking = [name for name in sink.partition_by if name not in frame.columns]
    if lacking:
        there = ", ".join(frame.columns)
        raise WrongColumns(f"there is no column {lacking[0]!r} to partition the lake by; the columns are {there}")
    folder = run.path(sink.path or "")
    check_shared(run.spark, folder)
    lake = open_lake(folder, sink.format)
    lake.prepare(frame.schema, sink.partition_by)
    lake.clean()
    return lake


def start(
    run: Run, writer: "DataStreamWriter", options: StreamOptions, *, owner: Mapping[str, Any] | None = None
) -> Totals:
    """Runs a streaming query to its end and returns its totals. Raises OtherCheckpoint if the checkpoint has another
    pipeline name, or other `owner` properties (such as topics)."""
    run.on_step("starting the query and its sources")
    checkpoint = run.checkpoint(options)
    _check_owner(checkpoint, {"pipeline": options.name, **(owner or {})})
    writer = writer.option("checkpointLocation", str(checkpoint)).queryName(options.name.replace("`", ""))
    if run.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(options.trigger * 1000)} milliseconds")
    query = start_query(writer.start)
    run.on_step("waiting for the first batch")
    return watch(query, run.on_batch, run.stopping)


def own_query(run: Run, options: StreamOptions) -> str:
    """Returns the id that a streaming query of this pipeline will have, before it starts. Raises OtherCheckpoint if
    the checkpoint belongs to another pipeline, FolderNotShared if Spark does not see it."""
    checkpoint = run.checkpoint(options)
    check_shared(run.spark, checkpoint)
    _check_owner(checkpoint, {"pipeline": options.name})
    return query_id(checkpoint)


def query_id(checkpoint: Path) -> str:
    """Returns the query id stored in a checkpoint; if there is none, creates and stores one, as Spark does."""
    file = checkpoint / "metadata"
    if not file.is_file():
        import uuid

        checkpoint.mkdir(parents=True, exist_ok=True)
        replace_synced(file, json.dumps({"id": str(uuid.uuid4())}))
    found: str = json.loads(file.read_text())["id"]
    return found


def _check_owner(checkpoint: Path, owner: Mapping[str, Any]) -> None:
    """Raises OtherCheckpoint if the checkpoint was created for another `owner`; a new checkpoint gets this owner."""
    file = checkpoint / f"{PRIVATE_FOLDER}.json"
    if file.is_file():
        before = json.loads(file.read_text())
        differs = [key for key in owner if before.get(key) != owner[key]]
        if differs:
            key = differs[0]
            raise OtherCheckpoint(
                f"the checkpoint {checkpoint} belongs to {key} {before.get(key)!r}, not {owner[key]!r}; "
                "set another checkpoint folder, or delete this one to start over"
            )
        return
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_synced(file, json.dumps(owner))


def first_rows(frame: "DataFrame", rows: int = ROWS_SHOWN) -> tuple[Sequence[str], list[list[object]]]:
    """Returns the column names and first rows of a result, to print on the terminal."""
    found = frame.limit(rows).collect()
    numbers = {"tinyint", "smallint", "int", "bigint", "float", "double"}
    columns = [f"#{name}" if kind in numbers else name for name, kind in frame.dtypes]
    return columns, [[_cell(cell) for cell in row] for row in found]


def _cell(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return value if isinstance(value, int | float | str | None) else str(value)

"""Where results go: a topic, a lake, or the screen."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.clusters import create_topic
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.lake import FORMATS, OURS, Lake, added, open_lake, replace_synced
from penstock.spark.pipelines.options import (
    Written,
    bootstrap,
    choice,
    names,
    number,
    option,
    pairs,
    text,
    topic,
    written,
)
from penstock.spark.pipelines.pipeline import EXACTLY_ONCE, Need, Run, Streaming
from penstock.spark.pipelines.query_progress import Totals, watch
from penstock.spark.query_start import start_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter

ROWS_SHOWN: Final = 20
COLUMNS: Final = ("topic", "key", "value", "headers", "partition")
"""What the columns of messages are called that are on their way into a topic."""


class WrongColumns(PenstockError):
    """A result that cannot be written where it should go."""


class OtherCheckpoint(PenstockError):
    """A checkpoint that was made by another pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    topic: str | None = option(topic, "The topic to write to", default=None)
    create: int | None = option(number(1), "Make the topic with so many partitions if it is not there", default=None)
    path: str | None = option(text, "The folder of the lake to write to", default=None, metavar="FOLDER")
    format: str = option(choice(*FORMATS), "What the lake is", default="parquet")
    partition_by: tuple[str, ...] = option(names, "Columns that the lake is divided by", default=())
    bootstrap: str | None = option(bootstrap, "Brokers, if they are not the pipeline's", default=None)
    key: str | None = option(text, "The column that becomes the key", default=None, metavar="COLUMN")
    value: str = option(
        choice("json", "columns"),
        "json puts all columns but the key into the value; columns takes the columns key, value, headers, partition",
        default="json",
    )
    mode: str = option(
        choice("append", "update", "complete"), "Which rows of an aggregation go out in each batch", default="append"
    )
    options: Mapping[str, str] = option(pairs, "More options of Spark's sink, by their names", default={})
    written: Written = written()


def check_sink(sink: Sink) -> Iterator[Problem]:
    if sink.topic is not None and sink.path is not None:
        yield Problem(sink.written.at, "sink: it is either a topic or a path, and has both")
    for key in ("key", "create", "bootstrap"):
        if getattr(sink, key) is not None and sink.topic is None:
            yield Problem(sink.written.place(key), f"sink: {key} goes with a topic, and there is none")
    if sink.partition_by and sink.path is None:
        yield Problem(sink.written.place("partition_by"), "sink: partition_by goes with a path, and there is none")
    if sink.key is not None and sink.value == "columns":
        yield Problem(sink.written.place("key"), "sink: with value: columns the key is the column of that name")
    if sink.path is not None and sink.mode != "append":
        message = f"sink: a lake takes each row once, and {sink.mode} sends rows again; use append with a watermark"
        yield Problem(sink.written.place("mode"), message)


def sink_need(sink: Sink, default: str) -> Need | None:
    if sink.topic is None:
        return None
    place = sink.written.place("topic")
    wanted = {} if sink.create is not None else {sink.topic: place}
    return Need(bootstrap=sink.bootstrap or default, at=place, topics=wanted)


def messages(frame: "DataFrame", sink: Sink) -> "DataFrame":
    """Rows as messages: key and value, and headers and a partition if there are such columns."""
    from pyspark.sql import functions as fn

    there = frame.columns
    if sink.value == "columns":
        if "value" not in there:
            raise WrongColumns(f"there is no column 'value' to write; there are {', '.join(there)}")
        return frame.select(*(name for name in COLUMNS if name in there and name != "topic"))
    if sink.key is not None and sink.key not in there:
        raise WrongColumns(f"there is no column {sink.key!r} to be the key; there are {', '.join(there)}")
    fields = [name for name in there if name != sink.key]
    if not fields:
        raise WrongColumns("all columns are in the key; add one for the value")
    value = fn.to_json(fn.struct(*(fn.col(f"`{name}`") for name in fields))).alias("value")
    if sink.key is None:
        return frame.select(value)
    return frame.select(fn.col(f"`{sink.key}`").cast("string").alias("key"), value)


def topic_writer_options(sink: Sink, default: str, delivery: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": sink.bootstrap or default,
        "topic": sink.topic or "",
        "delivery": delivery,
        **sink.options,
    }


def start_topic(run: Run, frame: "DataFrame", sink: Sink, options: Streaming) -> Totals:
    """Stream rows into a topic until all is done, or someone stops it."""
    if sink.create is not None and sink.topic is not None:
        create_topic(sink.bootstrap or options.bootstrap, sink.topic, sink.create)
    given = topic_writer_options(sink, options.bootstrap, options.delivery)
    rows = messages(frame, sink)
    if sink.mode == "update":
        return _start_updates(run, rows, given, options)
    return start(run, rows.writeStream.format("penstock").outputMode(sink.mode).options(**given), options)


def _start_updates(run: Run, rows: "DataFrame", given: Mapping[str, str], options: Streaming) -> Totals:
    """Spark refuses update mode to sinks in Python: each batch is a write of its own, decided by query and number."""
    state: dict[str, str] = {}

    def add(batch: "DataFrame", number: int) -> None:
        once = {"txnAppId": state["id"], "txnVersion": str(number)} if options.delivery == EXACTLY_ONCE else {}
        batch.write.format("penstock").mode("append").options(**given, **once).save()

    def remember(query_id: str) -> None:
        state["id"] = query_id

    return start(run, rows.writeStream.foreachBatch(add).outputMode("update"), options, before=remember)


def write_topic(frame: "DataFrame", sink: Sink, options: Streaming) -> None:
    """Write rows into a topic at once: all of them, or none."""
    if sink.create is not None and sink.topic is not None:
        create_topic(sink.bootstrap or options.bootstrap, sink.topic, sink.create)
    writer = messages(frame, sink).write.format("penstock").mode("append")
    writer.options(**topic_writer_options(sink, options.bootstrap, options.delivery)).save()


def start_lake(run: Run, frame: "DataFrame", sink: Sink, options: Streaming) -> tuple[Totals, Lake]:
    """Stream rows into a lake, each batch once."""
    lake = _prepared(run, frame, sink)
    state: dict[str, str] = {}

    def add(batch: "DataFrame", number: int) -> None:
        # The query's own id: a checkpoint that is made anew is another query, and counts from 0 again.
        mark = f"penstock/query/{state['id']}"
        before = lake.marks([mark])
        if before.get(mark, -1) < number:
            lake.commit(lake.write(batch, sink.partition_by), {mark: number}, before)

    def remember(query_id: str) -> None:
        state["id"] = query_id

    writer = frame.writeStream.foreachBatch(add).outputMode(sink.mode)
    return start(run, writer, options, before=remember), lake


def write_lake(run: Run, frame: "DataFrame", sink: Sink) -> int:
    """Add rows to a lake at once; how many."""
    lake = _prepared(run, frame, sink)
    files = lake.write(frame, sink.partition_by)
    lake.commit(files, {}, {})
    return added(files).rows


def _prepared(run: Run, frame: "DataFrame", sink: Sink) -> Lake:
    lacking = [name for name in sink.partition_by if name not in frame.columns]
    if lacking:
        there = ", ".join(frame.columns)
        raise WrongColumns(
            f"the lake is to be divided by {lacking[0]!r}, and there is no such column; there are {there}"
        )
    lake = open_lake(run.path(sink.path or ""), sink.format)
    lake.prepare(frame.schema, sink.partition_by)
    lake.clean()
    return lake


def start(
    run: Run,
    writer: "DataStreamWriter",
    options: Streaming,
    *,
    before: Callable[[str], None] | None = None,
    describes: Mapping[str, Any] | None = None,
) -> Totals:
    """Start a query and follow it. `before` learns the query's id before its first batch needs it."""
    checkpoint = run.checkpoint(options)
    _claim(checkpoint, {"pipeline": options.name, **(describes or {})})
    if before is not None:
        before(query_id(checkpoint))
    writer = writer.option("checkpointLocation", str(checkpoint)).queryName(options.name.replace("`", ""))
    if run.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(options.trigger * 1000)} milliseconds")
    return watch(start_query(writer.start), run.on_batch, run.stopping)


def query_id(checkpoint: Path) -> str:
    """The id of a checkpoint's query. Spark takes the one that is there, and makes one where none is; so do we."""
    file = checkpoint / "metadata"
    if not file.is_file():
        import uuid

        checkpoint.mkdir(parents=True, exist_ok=True)
        replace_synced(file, json.dumps({"id": str(uuid.uuid4())}))
    found: str = json.loads(file.read_text())["id"]
    return found


def _claim(checkpoint: Path, owner: Mapping[str, Any]) -> None:
    """A checkpoint belongs to the pipeline that made it: another one would skip what that has read."""
    file = checkpoint / f"{OURS}.json"
    if file.is_file():
        before = json.loads(file.read_text())
        differs = [key for key in owner if before.get(key) != owner[key]]
        if differs:
            key = differs[0]
            raise OtherCheckpoint(
                f"the checkpoint {checkpoint} belongs to {key} {before.get(key)!r}, not {owner[key]!r}; "
                "give this pipeline one of its own with checkpoint, or delete it to begin anew"
            )
        return
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_synced(file, json.dumps(owner))


def shown(frame: "DataFrame", rows: int = ROWS_SHOWN) -> tuple[Sequence[str], list[list[object]]]:
    """The first rows of a result, for the screen."""
    found = frame.limit(rows).collect()
    numbers = {"tinyint", "smallint", "int", "bigint", "float", "double"}
    columns = [f"#{name}" if kind in numbers else name for name, kind in frame.dtypes]
    return columns, [[_cell(cell) for cell in row] for row in found]


def _cell(value: object) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return value if isinstance(value, int | float | str | None) else str(value)

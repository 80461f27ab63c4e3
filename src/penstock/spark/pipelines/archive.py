"""`archive`: topics into a lake, exactly once. The archived offset is kept, so that topics can be trimmed behind it.

The lake itself knows how far each partition of a topic has come: a mark that is set by the same commit that brings
the rows in. Neither a lost checkpoint nor a batch that is done twice brings a row twice.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.client.metadata import TopicInfo
from penstock.foundation.ids import TopicPartition
from penstock.spark.pipelines.clusters import describe_topics, trim
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.json_values import from_json
from penstock.spark.pipelines.lake import FORMATS, OURS, Lake, added, ends_of, open_lake
from penstock.spark.pipelines.options import choice, flag, number, option, schema, size, text, topics
from penstock.spark.pipelines.pipeline import AT_LEAST_ONCE, Need, Pipeline, Report, Run, Sheet, Streaming
from penstock.spark.pipelines.sinks import start
from penstock.spark.pipelines.tables import Source, infer, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PARTITION_BY: Final = ("topic", "date")
EARLIEST: Final = -2
"""As an offset of Spark's Kafka source."""
COMPACT_EVERY: Final = 50
"""Batches after which small files are put together, and once more at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions(Streaming):
    topics: tuple[str, ...] = option(topics, "The topics to archive")
    path: str = option(text, "The folder of the archive", metavar="FOLDER")
    format: str = option(choice(*FORMATS), "What the archive is", default="parquet")
    schema: str | None = option(
        schema, "Fields of JSON values to have as columns value_…; infer looks at the last messages", default=None
    )
    file_size: int = option(size, "How large files become when small ones are put together", default=128 * 1024**2)
    max_rows: int | None = option(number(1), "Messages of one batch at most", default=None)
    group: str | None = option(text, "A consumer group that shows its progress", default=None)
    trim_archived: bool = option(flag, "Drop from the topics what is in the archive", default=False)


def mark_of(topic: TopicInfo, partition: int) -> str:
    """The name under which a lake keeps how far a partition has come. A topic that is made anew is another one."""
    return f"penstock/topic/{topic.name}/{topic.topic_id.hex()}/{partition}"


class Archive:
    """A lake that knows how far it has come in topics."""

    def __init__(self, lake: Lake, topics_read: Mapping[str, TopicInfo]) -> None:
        self.lake: Final = lake
        self._names: Final = {
            TopicPartition(topic.name, number): mark_of(topic, number)
            for topic in topics_read.values()
            for number in topic.partitions
        }
        self._topics: Final = dict(topics_read)

    def ends(self) -> dict[TopicPartition, int]:
        """The offset after the last archived one, of each partition that has one."""
        found = self.lake.marks(list(self._names.values()))
        return {name: found[mark] for name, mark in self._names.items() if mark in found}

    def name(self, partition: TopicPartition) -> str:
        """The mark of a partition; one that the topic has grown since belongs to it too."""
        return self._names.setdefault(partition, mark_of(self._topics[partition.topic], partition.partition))

    def add(self, batch: "DataFrame") -> int:
        """Bring in what is not there yet; how many rows."""
        before = self.ends()
        files = self.lake.write(_newer(batch, before), PARTITION_BY)
        ends: dict[str, int] = {}
        for file in files:
            topic = file.partition["topic"] or ""
            for partition, end in ends_of(file).items():
                mark = self.name(TopicPartition(topic, partition))
                ends[mark] = max(end, ends.get(mark, 0))
        if files:
            self.lake.commit(files, ends, {self.name(name): end for name, end in before.items()})
        return added(files).rows


def _newer(batch: "DataFrame", ends: Mapping[TopicPartition, int]) -> "DataFrame":
    """The rows after what is archived: after a crash a batch comes again, after a lost checkpoint all do."""
    from pyspark.sql import functions as fn

    if not ends:
        return batch
    pairs = [item for name, end in ends.items() for item in (fn.lit(f"{name.topic}/{name.partition}"), fn.lit(end))]
    place = fn.concat(fn.col("topic"), fn.lit("/"), fn.col("partition"))
    return batch.where(fn.col("offset") >= fn.coalesce(fn.try_element_at(fn.create_map(*pairs), place), fn.lit(0)))


def rows(raw: "DataFrame", fields: "StructType | None") -> "DataFrame":
    """Messages as the archive has them: all that they are, the day, and the fields of JSON values if asked for."""
    from pyspark.sql import functions as fn

    found = raw.withColumn("date", fn.date_format("timestamp", "yyyy-MM-dd"))
    if fields is None:
        return found
    # A value that is no JSON has empty fields here, and is kept as it is beside them.
    value = from_json(fn.col("value").cast("string"), fields, {"mode": "PERMISSIVE"})
    return (
        found.withColumn("_fields", value)
        .select("*", *(fn.col(f"_fields.`{field.name}`").alias(f"value_{field.name}") for field in fields.fields))
        .drop("_fields")
    )


def _fields(options: ArchiveOptions, run: Run) -> "StructType | None":
    if options.schema is None:
        return None
    if options.schema != "infer":
        return parsed(options.schema)
    return infer(run, Source(topic=options.topics), options.bootstrap)


def starting(topics_read: Mapping[str, TopicInfo], ends: Mapping[TopicPartition, int]) -> str:
    """Where to begin without a checkpoint: where the archive ends."""
    found = {
        topic.name: {
            str(number): ends.get(TopicPartition(topic.name, number), EARLIEST) for number in topic.partitions
        }
        for topic in topics_read.values()
    }
    return json.dumps(found) if ends else "earliest"


def _check(options: ArchiveOptions) -> Iterator[Problem]:
    if options.delivery == AT_LEAST_ONCE:
        message = "delivery: an archive is exactly once always; leave it out"
        yield Problem(options.written.place("delivery"), message)


def _needs(options: ArchiveOptions) -> Iterator[Need]:
    place = options.written.place("topics")
    at = options.written.place("bootstrap")
    yield Need(bootstrap=options.bootstrap, at=at, topics=dict.fromkeys(options.topics, place))


def _run(options: ArchiveOptions, run: Run) -> Report:
    known = describe_topics(options.bootstrap, options.topics)
    archive = Archive(open_lake(run.path(options.path), options.format), known)
    source = {
        "kafka.bootstrap.servers": options.bootstrap,
        "subscribe": ",".join(options.topics),
        "includeHeaders": "true",
        "startingOffsets": starting(known, archive.ends()),
    }
    if options.max_rows is not None:
        source["maxOffsetsPerTrigger"] = str(options.max_rows)
    if options.group is not None:
        source["kafka.group.id"] = options.group
    frame = rows(run.spark.readStream.format("penstock").options(**source).load(), _fields(options, run))
    archive.lake.prepare(frame.schema, PARTITION_BY)
    archive.lake.clean()
    state = {"rows": 0, "batches": 0, "compacted": 0}

    def add(batch: "DataFrame", number: int) -> None:
        state["rows"] += archive.add(batch)
        state["batches"] += 1
        if options.trim_archived:
            trim(options.bootstrap, archive.ends())
        if state["batches"] % COMPACT_EVERY == 0:
            state["compacted"] += archive.lake.compact(options.file_size)

    writer = frame.writeStream.foreachBatch(add)
    ids = {topic.name: topic.topic_id.hex() for topic in known.values()}
    totals = start(run, writer, _with_checkpoint(options), describes={"topics": ids})
    if state["batches"]:
        run.on_step("putting small files together")
        state["compacted"] += archive.lake.compact(options.file_size)
    return _report(options, run, archive.ends(), {**totals.facts(), **state})


def _with_checkpoint(options: ArchiveOptions) -> ArchiveOptions:
    """An archive's checkpoint lies in it unless it is said where: they belong together."""
    from dataclasses import replace

    return (
        options
        if options.checkpoint is not None
        else replace(options, checkpoint=f"{options.path}/{OURS}/checkpoint")
    )


def _report(
    options: ArchiveOptions, run: Run, ends: Mapping[TopicPartition, int], facts: Mapping[str, object]
) -> Report:
    table: Sequence[Sequence[object]] = [(name.topic, name.partition, end) for name, end in sorted(ends.items())]
    trimmed = "; the topics were trimmed behind it" if options.trim_archived else ""
    return Report(
        verdict=f"{facts['rows']} messages were added to {run.path(options.path)}{trimmed}",
        facts=facts,
        sheets=[Sheet(title="archived", columns=["TOPIC", "#PARTITION", "#UP TO OFFSET"], rows=table)],
    )


PIPELINE: Final = Pipeline(
    name="archive",
    summary="Topics into a lake of Parquet or Delta, exactly once; topics can be trimmed behind it",
    about="""\
Every message with its key, value, headers, timestamp and offset, divided by topic and day. The archive keeps the
offset that it has reached in each partition, so that neither a crash nor a lost checkpoint brings anything twice,
and topics can be trimmed behind it. Small files are put together. `replay` brings messages back, `audit` compares
the two.""",
    example="penstock pipeline run archive -o topics=orders -o path=lake/orders --once --trim-archived\n",
    options=ArchiveOptions,
    needs=_needs,
    check=_check,
    run=_run,
    streams=True,
)

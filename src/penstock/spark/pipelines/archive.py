"""The `archive` pipeline: copies topics into a lake, exactly once, and can delete archived records from the topics.

The lake stores the archived offset of each partition as a mark (a named number), in the same commit as the rows. So
neither a lost checkpoint nor a repeated batch duplicates a row.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.client.metadata import TopicInfo
from penstock.foundation.ids import TopicPartition
from penstock.spark.connect import check_shared
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.clusters import describe_topics, trim
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.json_values import from_json
from penstock.spark.pipelines.lake import FORMATS, PRIVATE_FOLDER, Lake, count_added, end_offsets
from penstock.spark.pipelines.lake_formats import open_lake
from penstock.spark.pipelines.options import choice, flag, number, option, schema, size, text, topics
from penstock.spark.pipelines.pipeline import AT_LEAST_ONCE, Need, Pipeline, Report, ReportTable, Run, StreamOptions
from penstock.spark.pipelines.sinks import start
from penstock.spark.pipelines.tables import Source, infer_schema, parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

PARTITION_BY: Final = ("topic", "date")
EARLIEST: Final = -2
"""The number that stands for the earliest offset in the offset options of Spark's Kafka source."""
COMPACT_EVERY: Final = 50
"""Number of batches after which small files are merged. They are also merged at the end of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions(StreamOptions):
    topics: tuple[str, ...] = option(topics, "The topics to archive")
    path: str = option(text, "The folder of the archive", metavar="FOLDER")
    format: str = option(choice(*FORMATS), "The format of the archive", default="parquet")
    schema: str | None = option(
        schema, "The fields of JSON values, as columns value_…; infer samples the latest messages", default=None
    )
    file_size: int = option(size, "The target size when small files are merged", default=128 * 1024**2)
    max_rows: int | None = option(number(1), "The most messages per micro-batch", default=None)
    group: str | None = option(text, "A consumer group to commit progress to", default=None)
    trim_archived: bool = option(flag, "Delete archived messages from the topics", default=False)


def mark_of(topic: TopicInfo, partition: int) -> str:
    """Returns the name of the mark (a named number in the lake) that stores a partition's archived offset. It
    contains the topic id, so that a recreated topic has new marks."""
    return f"penstock/topic/{topic.name}/{topic.topic_id.hex()}/{partition}"


class Archive:
    """A lake that holds archived topics and their archived offsets."""

    def __init__(self, lake: Lake, topics_read: Mapping[str, TopicInfo]) -> None:
        self.lake: Final = lake
        self._names: Final = {
            TopicPartition(topic.name, number): mark_of(topic, number)
            for topic in topics_read.values()
            for number in topic.partitions
        }
        self._topics: Final = dict(topics_read)

    def ends(self) -> dict[TopicPartition, int]:
        """Returns the offset after the last archived record of each partition that has archived records."""
        found = self.lake.marks(list(self._names.values()))
        return {name: found[mark] for name, mark in self._names.items() if mark in found}

    def name(self, partition: TopicPartition) -> str:
        """Returns the name of the mark (a named number in the lake) that stores a partition's archived offset."""
        return self._names.setdefault(partition, mark_of(self._topics[partition.topic], partition.partition))

    def add(self, batch: "DataFrame") -> int:
        """Adds the rows of a batch that are not archived yet; returns the number of added rows."""
        before = self.ends()
        files = self.lake.write(_newer(batch, before), PARTITION_BY)
        ends: dict[str, int] = {}
        for file in files:
            topic = file.partition["topic"] or ""
            for partition, end in end_offsets(file).items():
                mark = self.name(TopicPartition(topic, partition))
                ends[mark] = max(end, ends.get(mark, 0))
        if files:
            self.lake.commit(files, ends, {self.name(name): end for name, end in before.items()})
        return count_added(files).rows


def _newer(batch: "DataFrame", ends: Mapping[TopicPartition, int]) -> "DataFrame":
    """Returns the rows not archived yet: at or after the end offset of the partition's archived records (`ends`)."""
    from pyspark.sql import functions as fn

    if not ends:
        return batch
    pairs = [item for name, end in ends.items() for item in (fn.lit(f"{name.topic}/{name.partition}"), fn.lit(end))]
    tp = fn.concat(fn.col("topic"), fn.lit("/"), fn.col("partition"))
    return batch.where(fn.col("offset") >= fn.coalesce(fn.try_element_at(fn.create_map(*pairs), tp), fn.lit(0)))


def rows(raw: "DataFrame", fields: "StructType | None") -> "DataFrame":
    """Returns `raw` with a column `date` and, if `fields` are given, one column for each field of JSON values."""
    from pyspark.sql import functions as fn

    found = raw.withColumn("date", fn.date_format("timestamp", "yyyy-MM-dd"))
    if fields is None:
        return found
    # A value that is not JSON has null fields; the original value is archived too.
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
        return parse_schema(options.schema)
    return infer_schema(run, Source(topic=options.topics), options.bootstrap)


def starting(topics_read: Mapping[str, TopicInfo], ends: Mapping[TopicPartition, int]) -> str:
    """Returns `startingOffsets` for a query without a checkpoint. Each partition starts at its offset in `ends`,
    the end of its archived records; a partition that is missing in `ends` starts at the earliest offset."""
    found = {
        topic.name: {
            str(number): ends.get(TopicPartition(topic.name, number), EARLIEST) for number in topic.partitions
        }
        for topic in topics_read.values()
    }
    return json.dumps(found) if ends else "earliest"


def _check(options: ArchiveOptions) -> Iterator[Problem]:
    if options.delivery == AT_LEAST_ONCE:
        message = "delivery: an archive is always exactly-once; remove this option"
        yield Problem(options.locations.of("delivery"), message)


def _needs(options: ArchiveOptions) -> Iterator[Need]:
    topics_at = options.locations.of("topics")
    at = options.locations.of("bootstrap")
    yield Need(bootstrap=options.bootstrap, location=at, topics=dict.fromkeys(options.topics, topics_at))


def _run(options: ArchiveOptions, run: Run) -> Report:
    known = describe_topics(options.bootstrap, options.topics)
    archive = Archive(open_lake(run.path(options.path), options.format), known)
    source = {
        **options.bootstrap.options,
        "subscribe": ",".join(options.topics),
        "includeHeaders": "true",
        "startingOffsets": starting(known, archive.ends()),
    }
    if options.max_rows is not None:
        source["maxOffsetsPerTrigger"] = str(options.max_rows)
    if options.group is not None:
        source["kafka.group.id"] = options.group
    frame = rows(run.spark.readStream.format("penstock").options(**source).load(), _fields(options, run))
    check_shared(run.spark, archive.lake.folder)
    archive.lake.prepare(frame.schema, PARTITION_BY)
    archive.lake.clean()
    counts = Counts.new(archive.lake.staging)
    batches = ArchiveBatches(
        archive=archive,
        counts=counts,
        trim_at=options.bootstrap if options.trim_archived else None,
        file_size=options.file_size,
    )
    ids = {topic.name: topic.topic_id.hex() for topic in known.values()}
    try:
        totals = start(run, frame.writeStream.foreachBatch(batches), _with_checkpoint(options), owner={"topics": ids})
        state = counts.load()
    finally:
        counts.file.unlink(missing_ok=True)
    if state["batches"]:
        run.on_step("merging small files")
        state["compacted"] += archive.lake.compact(options.file_size)
    return _report(options, run, archive.ends(), {**totals.facts(), **state})


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of a run in a file: with Spark Connect, batches are added by another process."""

    file: Path

    @classmethod
    def new(cls, folder: Path) -> "Counts":
        folder.mkdir(parents=True, exist_ok=True)
        return cls(file=folder / f"counts-{uuid.uuid4().hex}.json")

    def load(self) -> dict[str, int]:
        if not self.file.is_file():
            return {"rows": 0, "batches": 0, "compacted": 0}
        found: dict[str, int] = json.loads(self.file.read_text())
        return found

    def save(self, counts: Mapping[str, int]) -> None:
        self.file.write_text(json.dumps(counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBatches:
    """The `foreachBatch` function of an archive. With Spark Connect it runs in a Python process of the server, so it
    has only what can be pickled."""

    archive: Archive
    counts: Counts
    trim_at: Brokers | None
    """The brokers at which archived records are deleted; None: they are kept."""
    file_size: int

    def __call__(self, batch: "DataFrame", number: int) -> None:
        counts = self.counts.load()
        counts["rows"] += self.archive.add(batch)
        counts["batches"] += 1
        if self.trim_at is not None:
            trim(self.trim_at, self.archive.ends())
        if counts["batches"] % COMPACT_EVERY == 0:
            counts["compacted"] += self.archive.lake.compact(self.file_size)
        self.counts.save(counts)


def _with_checkpoint(options: ArchiveOptions) -> ArchiveOptions:
    """Returns the options with a checkpoint folder: if none is set, a folder inside the archive."""
    from dataclasses import replace

    return (
        options
        if options.checkpoint is not None
        else replace(options, checkpoint=f"{options.path}/{PRIVATE_FOLDER}/checkpoint")
    )


def _report(
    options: ArchiveOptions, run: Run, ends: Mapping[TopicPartition, int], facts: Mapping[str, object]
) -> Report:
    table: Sequence[Sequence[object]] = [(name.topic, name.partition, end) for name, end in sorted(ends.items())]
    trimmed = "; archived messages were trimmed from the topics" if options.trim_archived else ""
    return Report(
        verdict=f"{facts['rows']} messages were added to {run.path(options.path)}{trimmed}",
        facts=facts,
        tables=[ReportTable(title="archived", columns=["TOPIC", "#PARTITION", "#UP TO OFFSET"], rows=table)],
    )


PIPELINE: Final = Pipeline(
    name="archive",
    summary="Copies topics into a Parquet or Delta lake, exactly once; topics can be trimmed behind it",
    about="""\
Archives every message with its key, value, headers, timestamp and offset, partitioned by topic and day. The archive
stores the offset reached in each partition, so that neither a crash nor a lost checkpoint duplicates messages, and
topics can be trimmed behind it. Small files are merged. `replay` writes messages back, `audit` compares a topic with
its archive.""",
    example="penstock pipeline run archive -o topics=orders -o path=lake/orders --once --trim-archived\n",
    options=ArchiveOptions,
    needs=_needs,
    check=_check,
    run=_run,
    streams=True,
)

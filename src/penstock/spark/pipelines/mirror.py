"""The `mirror` pipeline: copies topics from one cluster to another, exactly once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.clusters import create_topic, describe_topics, list_topics, topic_configs
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.options import bootstrap, flag, number, option, text, topics
from penstock.spark.pipelines.pipeline import Need, Pipeline, Report, ReportTable, Run, StreamOptions
from penstock.spark.pipelines.sinks import start


class CannotMirror(PenstockError):
    """A target topic has fewer partitions than its source topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions(StreamOptions):
    topics: tuple[str, ...] = option(topics, "The topics to mirror")
    to: Brokers = option(bootstrap, "The brokers of the target cluster")
    prefix: str = option(text, "A prefix for topic names on the target cluster", default="")
    create: bool = option(flag, "Create missing topics, with the same partitions and settings", default=True)
    starting: str = option(
        text, "Where to start: earliest, latest, or offsets in Spark's JSON format", default="earliest"
    )
    max_rows: int | None = option(number(1), "The most messages per micro-batch", default=None)
    group: str | None = option(text, "A consumer group to commit progress to", default=None)


def _check(options: MirrorOptions) -> Iterator[Problem]:
    if str(options.to) == str(options.bootstrap) and not options.prefix:
        message = "to: it is the source cluster, so that topics would be their own mirrors; set a prefix"
        yield Problem(options.locations.of("to"), message)


def _needs(options: MirrorOptions) -> Iterator[Need]:
    topics_at = options.locations.of("topics")
    at = options.locations.of("bootstrap")
    yield Need(bootstrap=options.bootstrap, location=at, topics=dict.fromkeys(options.topics, topics_at))
    wanted = () if options.create else tuple(f"{options.prefix}{name}" for name in options.topics)
    yield Need(bootstrap=options.to, location=options.locations.of("to"), topics=dict.fromkeys(wanted, topics_at))


def _prepare(options: MirrorOptions) -> list[tuple[str, str, int]]:
    """Creates missing target topics. Returns source, target and partition count of each mirrored topic."""
    here = describe_topics(options.bootstrap, options.topics)
    there = {topic.name: topic for topic in list_topics(options.to)}
    found = []
    for topic in here.values():
        name = f"{options.prefix}{topic.name}"
        count = len(topic.partitions)
        if name not in there:
            create_topic(options.to, name, count, topic_configs(options.bootstrap, topic.name))
        elif len(there[name].partitions) < count:
            raise CannotMirror(
                f"topic {name!r} on {options.to} has {len(there[name].partitions)} partitions, but {topic.name!r} "
                f"has {count}; add partitions with `penstock topic alter {name} --partitions {count}`"
            )
        found.append((topic.name, name, count))
    return found


def _run(options: MirrorOptions, run: Run) -> Report:
    from pyspark.sql import functions as fn

    pairs = _prepare(options)
    source = {
        **options.bootstrap.options,
        "subscribe": ",".join(options.topics),
        "startingOffsets": options.starting,
        "includeHeaders": "true",
    }
    if options.max_rows is not None:
        source["maxOffsetsPerTrigger"] = str(options.max_rows)
    if options.group is not None:
        source["kafka.group.id"] = options.group
    raw = run.spark.readStream.format("penstock").options(**source).load()
    frame = raw.select(
        fn.concat(fn.lit(options.prefix), fn.col("topic")).alias("topic"), "partition", "key", "value", "headers"
    )
    writer = frame.writeStream.format("penstock").outputMode("append")
    writer = writer.options(**{**options.to.options, "delivery": options.delivery})
    totals = start(run, writer, options, owner={"topics": sorted(options.topics), "to": str(options.to)})
    return Report(
        verdict=f"{totals.rows} messages were mirrored to {options.to}",
        facts=totals.facts(),
        tables=[ReportTable(title="topics", columns=["FROM", "TO", "#PARTITIONS"], rows=pairs)],
    )


PIPELINE: Final = Pipeline(
    name="mirror",
    summary="Copies topics from one cluster to another, exactly once",
    about="""\
Copies every message with its key, value and headers to the same partition, in the same order. Missing topics are
created with the same number of partitions and settings. Offsets and timestamps are those of the target cluster. Only
committed messages are mirrored; consumers of the target cluster should use read_committed too.""",
    example="penstock pipeline run mirror -o topics=orders,payments -o to=backup:9092 --continuous\n",
    options=MirrorOptions,
    needs=_needs,
    check=_check,
    run=_run,
    streams=True,
)

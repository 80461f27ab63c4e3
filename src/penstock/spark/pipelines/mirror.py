"""`mirror`: topics from one cluster to another, exactly once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.clusters import create_topic, describe_topics, list_topics, topic_configs
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.options import bootstrap, flag, number, option, text, topics
from penstock.spark.pipelines.pipeline import Need, Pipeline, Report, Run, Sheet, Streaming
from penstock.spark.pipelines.sinks import start


class CannotMirror(PenstockError):
    """The topics of the other cluster do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions(Streaming):
    topics: tuple[str, ...] = option(topics, "The topics to mirror")
    to: str = option(bootstrap, "The brokers of the other cluster")
    prefix: str = option(text, "What the names of topics begin with over there", default="")
    create: bool = option(flag, "Make topics that are not there, with partitions and settings alike", default=True)
    starting: str = option(
        text, "Where to begin: earliest, latest, or offsets as Spark writes them", default="earliest"
    )
    max_rows: int | None = option(number(1), "Messages of one batch at most", default=None)
    group: str | None = option(text, "A consumer group that shows its progress", default=None)


def _check(options: MirrorOptions) -> Iterator[Problem]:
    if options.to == options.bootstrap and not options.prefix:
        message = "to: it is the cluster that is read from, and the topics would be their own mirrors; give a prefix"
        yield Problem(options.written.place("to"), message)


def _needs(options: MirrorOptions) -> Iterator[Need]:
    place = options.written.place("topics")
    at = options.written.place("bootstrap")
    yield Need(bootstrap=options.bootstrap, at=at, topics=dict.fromkeys(options.topics, place))
    wanted = () if options.create else tuple(f"{options.prefix}{name}" for name in options.topics)
    yield Need(bootstrap=options.to, at=options.written.place("to"), topics=dict.fromkeys(wanted, place))


def _prepare(options: MirrorOptions) -> list[tuple[str, str, int]]:
    """See that every topic has its mirror, with as many partitions: a message keeps its partition."""
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
                f"topic {name!r} on {options.to} has {len(there[name].partitions)} partitions, and {topic.name!r} "
                f"has {count}; give it as many with `penstock topic alter {name} --partitions {count}`"
            )
        found.append((topic.name, name, count))
    return found


def _run(options: MirrorOptions, run: Run) -> Report:
    from pyspark.sql import functions as fn

    pairs = _prepare(options)
    source = {
        "kafka.bootstrap.servers": options.bootstrap,
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
    writer = writer.options(**{"kafka.bootstrap.servers": options.to, "delivery": options.delivery})
    totals = start(run, writer, options, describes={"topics": sorted(options.topics), "to": options.to})
    return Report(
        verdict=f"{totals.rows} messages were mirrored to {options.to}",
        facts=totals.facts(),
        sheets=[Sheet(title="topics", columns=["FROM", "TO", "#PARTITIONS"], rows=pairs)],
    )


PIPELINE: Final = Pipeline(
    name="mirror",
    summary="Topics from one cluster to another, exactly once",
    about="""\
Every message with its key, value and headers, in the same partition and in the same order. Topics that are not
there are made, with as many partitions and the same settings. Offsets and timestamps are the other cluster's own.
Only committed messages are mirrored; readers over there should read committed too.""",
    example="penstock pipeline run mirror -o topics=orders,payments -o to=backup:9092 --continuous\n",
    options=MirrorOptions,
    needs=_needs,
    check=_check,
    run=_run,
    streams=True,
)

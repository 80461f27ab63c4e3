"""The `insights` pipeline: throughput, sizes, hot keys, latency and group lag, as tables and an HTML page."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.client.cluster import KafkaClient
from penstock.client.groups import Groups
from penstock.client.offsets import When, list_offsets
from penstock.foundation.errors import PenstockError
from penstock.spark.pipelines.clusters import run_with_client
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.options import duration, moment, names, number, option, text, topics
from penstock.spark.pipelines.page import Section, page, table
from penstock.spark.pipelines.pipeline import CommonOptions, Need, Pipeline, Report, ReportTable, Run
from penstock.spark.pipelines.plots import Series, bars, clock, lines, short

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STEPS_MS: Final = (100, 1000, 5000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000)
"""Possible time intervals between the points of a plot, in milliseconds, in ascending order."""
QUANTILES: Final = (0.5, 0.95, 0.99)
KEYS_SHOWN: Final = 10
SAMPLE_S: Final = 1.0


class NoMessages(PenstockError):
    """The topics have no messages in the requested period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightsOptions(CommonOptions):
    topics: tuple[str, ...] = option(topics, "The topics to analyse")
    since: int | None = option(moment, "Only messages since this time", default=None)
    until: int | None = option(moment, "Only messages before this time", default=None)
    sent: str | None = option(
        text,
        "When a message was sent, as a timestamp or in ms: the start of its latency",
        default=None,
        metavar="SQL",
    )
    received: str = option(text, "When it arrived; by default its timestamp in the topic", default="timestamp")
    groups: tuple[str, ...] = option(names, "Consumer groups whose lag is shown", default=())
    watch: float = option(duration, "How long to sample the lag of groups, once a second", default=0.0)
    points: int = option(number(10, 500), "The most points of a plot", default=120)
    page: str | None = option(text, "The HTML file to write", default=None, metavar="FILE.html")


class LagSample(NamedTuple):
    at_ms: int
    lags: Mapping[str, int]


class Findings(NamedTuple):
    partitions: Sequence[Mapping[str, object]]
    step_ms: int
    times: Sequence[Mapping[str, object]]
    keys: Sequence[tuple[str, str, int]]
    distinct: Mapping[str, int]
    latency: Mapping[str, Sequence[float]]
    lags: Sequence[LagSample]


def _check(options: InsightsOptions) -> Iterator[Problem]:
    if options.since is not None and options.until is not None and options.since >= options.until:
        yield Problem(options.locations.of("until"), "until: it must be later than since")
    if options.watch and not options.groups:
        yield Problem(options.locations.of("watch"), "watch: it requires groups")


def _needs(options: InsightsOptions) -> Iterator[Need]:
    at = options.locations
    topics = dict.fromkeys(options.topics, at.of("topics"))
    groups = dict.fromkeys(options.groups, at.of("groups"))
    yield Need(bootstrap=options.bootstrap, location=at.of("bootstrap"), topics=topics, groups=groups)


def _messages(options: InsightsOptions, run: Run) -> "DataFrame":
    from pyspark.sql import functions as fn

    given = {**options.bootstrap.options, "subscribe": ",".join(options.topics)}
    given["includeHeaders"] = "true"
    frame = run.spark.read.format("penstock").options(**given).load()
    if options.since is not None:
        frame = frame.where(fn.col("timestamp") >= fn.timestamp_millis(fn.lit(options.since)))
    if options.until is not None:
        frame = frame.where(fn.col("timestamp") < fn.timestamp_millis(fn.lit(options.until)))
    latency = fn.lit(None).cast("double")
    if options.sent is not None:
        latency = (_millis(frame, options.received) - _millis(frame, options.sent)).cast("double")
    size = fn.coalesce(fn.octet_length("key"), fn.lit(0)) + fn.coalesce(fn.octet_length("value"), fn.lit(0))
    return frame.select(
        "topic",
        "partition",
        "key",
        fn.unix_millis("timestamp").alias("at_ms"),
        size.alias("size"),
        latency.alias("latency_ms"),
    )


def _millis(frame: "DataFrame", expression: str) -> "Column":
    """Returns a column with the value of an SQL expression (timestamp or number) in milliseconds since 1970."""
    from pyspark.sql import functions as fn

    kind = frame.select(fn.expr(expression)).dtypes[0][1]
    if kind.startswith("timestamp"):
        return fn.unix_millis(fn.expr(expression).cast("timestamp"))
    return fn.expr(expression).cast("double")


def _quantiles(column: str) -> "Column":
    from pyspark.sql import functions as fn

    return fn.percentile_approx(column, list(QUANTILES), 1000)


def step_for(span_ms: int, points: int) -> int:
    """Returns the shortest interval in ms (0.1 s, 1 s, 5 s, … days) that `span_ms` contains at most `points` times.

    >>> step_for(span_ms=90_000, points=120)
    1000
    """
    for step in STEPS_MS:
        if span_ms / step <= points:
            return step
    day = STEPS_MS[-1]
    return day * math.ceil(span_ms / points / day)


def _measure(options: InsightsOptions, run: Run) -> Findings:
    from pyspark.sql import functions as fn

    frame = _messages(options, run)
    run.on_step("counting messages by partition")
    partitions = [
        row.asDict()
        for row in frame.groupBy("topic", "partition")
        .agg(
            fn.count("*").alias("messages"),
            fn.sum("size").alias("bytes"),
            fn.max("size").alias("largest"),
            _quantiles("size").alias("sizes"),
            fn.min("at_ms").alias("first_ms"),
            fn.max("at_ms").alias("last_ms"),
        )
        .orderBy("topic", "partition")
        .collect()
    ]
    if not partitions:
        raise NoMessages(f"there are no matching messages in {', '.join(options.topics)}")
    first = min(row["first_ms"] for row in partitions)
    step_ms = step_for(max(row["last_ms"] for row in partitions) - first, options.points)
    run.on_step("counting messages over time")
    bucket = (fn.floor(fn.col("at_ms") / step_ms) * step_ms).alias("at_ms")
    by_time = frame.groupBy("topic", bucket).agg(
        fn.count("*").alias("messages"),
        fn.sum("size").alias("bytes"),
        _quantiles("latency_ms").alias("latency"),
    )
    times = [row.asDict() for row in by_time.orderBy("at_ms").collect()]
    run.on_step("counting keys")
    keys, distinct = _count_keys(frame)
    latency: dict[str, Sequence[float]] = {}
    if options.sent is not None:
        run.on_step("measuring latency")
        found = frame.groupBy("topic").agg(_quantiles("latency_ms").alias("all"), fn.max("latency_ms").alias("most"))
        latency = {row["topic"]: [*row["all"], row["most"]] for row in found.collect() if row["all"]}
    lags = _sample_lags(options, run) if options.groups else []
    return Findings(partitions, step_ms, times, keys, distinct, latency, lags)


def _count_keys(frame: "DataFrame") -> tuple[list[tuple[str, str, int]], dict[str, int]]:
    """Returns the most frequent keys, and the number of distinct keys of each topic."""
    from pyspark.sql import functions as fn

    keyed = frame.where("key IS NOT NULL")
    counted = keyed.groupBy("topic", "key").count()
    rows = counted.orderBy(fn.desc("count"), "topic", "key").limit(KEYS_SHOWN).collect()
    hot = [(row["topic"], bytes(row["key"]).decode("utf-8", "backslashreplace"), row["count"]) for row in rows]
    distinct = keyed.groupBy("topic").agg(fn.approx_count_distinct("key", 0.02).alias("keys")).collect()
    return hot, {row["topic"]: row["keys"] for row in distinct}


def _sample_lags(options: InsightsOptions, run: Run) -> list[LagSample]:
    run.on_step("measuring the lag of groups")
    samples = []
    until_s = time.monotonic() + options.watch
    while True:
        samples.append(run_with_client(options.bootstrap, lambda client: _measure_lags(client, options)))
        if time.monotonic() + SAMPLE_S > until_s:
            return samples
        time.sleep(SAMPLE_S)


async def _measure_lags(client: KafkaClient, options: InsightsOptions) -> LagSample:
    """Returns each consumer group's lag: the number of messages in the topics after its committed offsets."""
    partitions = [part for name in options.topics for part in (await client.topic(name)).tps]
    ends = await list_offsets(client, partitions, When.LATEST)
    begins = await list_offsets(client, partitions, When.EARLIEST)
    lags = {}
    for group in options.groups:
        committed = await Groups(client).offsets(group)
        offsets = {part: committed[part].offset if part in committed else begins[part].offset for part in partitions}
        lags[group] = sum(max(0, ends[part].offset - offset) for part, offset in offsets.items())
    return LagSample(round(time.time() * 1000), lags)


# -- report


def _run(options: InsightsOptions, run: Run) -> Report:
    found = _measure(options, run)
    tables = _report_tables(found)
    total = sum(int(str(row["messages"])) for row in found.partitions)
    verdict = f"{total} messages in {', '.join(options.topics)}"
    if options.page is not None:
        path = run.path(options.page)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_page(options, found, tables, total))
        verdict += f"; the page is {path}"
    return Report(verdict=verdict, facts={"messages": total, "step_ms": found.step_ms}, tables=tables)


def _report_tables(found: Findings) -> list[ReportTable]:
    rows: list[Sequence[object]] = []
    for row in found.partitions:
        sizes = row["sizes"]
        assert isinstance(sizes, list)
        rows.append((row["topic"], row["partition"], row["messages"], row["bytes"], *sizes, row["largest"]))
    columns = ["TOPIC", "#PARTITION", "#MESSAGES", "#BYTES", "#SIZE P50", "#P95", "#P99", "#LARGEST"]
    tables = [ReportTable(title="partitions", columns=columns, rows=rows)]
    if found.keys:
        totals = _messages_by_topic(found)
        hot = [(name, key, count, f"{count / totals[name]:.1%}") for name, key, count in found.keys]
        tables.append(ReportTable(title="hot keys", columns=["TOPIC", "KEY", "#MESSAGES", "#SHARE"], rows=hot))
        spread = [
            (name, keys, round(totals[name] / keys, 1)) for name, keys in sorted(found.distinct.items()) if keys
        ]
        tables.append(ReportTable(title="keys", columns=["TOPIC", "#KEYS (ABOUT)", "#MESSAGES A KEY"], rows=spread))
    if found.latency:
        latency = [(name, *(round(value, 1) for value in values)) for name, values in sorted(found.latency.items())]
        columns = ["TOPIC", "#P50", "#P95", "#P99", "#MOST"]
        tables.append(ReportTable(title="latency ms", columns=columns, rows=latency))
    if found.lags:
        last = found.lags[-1].lags
        lags = [(group, lag, max(sample.lags[group] for sample in found.lags)) for group, lag in sorted(last.items())]
        tables.append(ReportTable(title="groups", columns=["GROUP", "#LAG", "#MOST"], rows=lags))
    return tables


def _messages_by_topic(found: Findings) -> dict[str, int]:
    totals: dict[str, int] = {}
    for row in found.partitions:
        name = str(row["topic"])
        totals[name] = totals.get(name, 0) + int(str(row["messages"]))
    return totals


def _page(options: InsightsOptions, found: Findings, tables: Sequence[ReportTable], total: int) -> str:
    size = sum(int(str(row["bytes"])) for row in found.partitions)
    first = min(int(str(row["first_ms"])) for row in found.partitions)
    last = max(int(str(row["last_ms"])) for row in found.partitions)
    span_s = max(0.001, (last - first) / 1000)
    cards = [
        ("messages", short(total)),
        ("messages a second", short(total / span_s)),
        ("bytes", short(size)),
        ("bytes a message", short(size / total)),
        ("keys, about", short(sum(found.distinct.values()))),
    ]
    cards += [(f"latency p99, {name}", f"{short(values[2])} ms") for name, values in sorted(found.latency.items())]
    by_title = {each.title: table(each.columns, each.rows) for each in tables}
    sections = [Section("Throughput", _throughput_plot(options, found, "messages", "messages a second"))]
    if found.latency:
        sections.append(Section("Latency, end to end", _latency_plot(options, found) + by_title["latency ms"]))
    if found.keys:
        rows = [(f"{key}", float(count), f"{count:,}") for _, key, count in found.keys]
        sections.append(Section("Hot keys", bars(rows) + by_title["keys"]))
    if found.lags:
        groups = [Series(name, [float(sample.lags[name]) for sample in found.lags]) for name in found.lags[0].lags]
        plot = (
            lines([sample.at_ms for sample in found.lags], groups, "messages behind") if len(found.lags) > 1 else ""
        )
        sections.append(Section("Groups", plot + by_title["groups"]))
    rows = [
        (f"{row['topic']}-{row['partition']}", float(str(row["messages"])), f"{row['messages']:,}")
        for row in found.partitions
    ]
    sections.append(Section("Partitions", bars(rows) + by_title["partitions"]))
    stretch = f"{clock(first, 2 * 86_400_000)} to {clock(last, 2 * 86_400_000)}"
    return page(f"Insights: {', '.join(options.topics)}", f"{stretch}, {options.bootstrap}", cards, sections)


def _time_grid(found: Findings) -> list[int]:
    """Returns the times of all points of a plot, in milliseconds since 1970, including points without messages."""
    times = [int(str(row["at_ms"])) for row in found.times]
    return list(range(min(times), max(times) + found.step_ms, found.step_ms))


def _throughput_plot(options: InsightsOptions, found: Findings, column: str, unit: str) -> str:
    grid = _time_grid(found)
    series = []
    for name in options.topics:
        counted = {int(str(row["at_ms"])): float(str(row[column])) for row in found.times if row["topic"] == name}
        series.append(Series(name, [counted.get(at_ms, 0.0) * 1000 / found.step_ms for at_ms in grid]))
    return lines(grid, series, unit)


def _latency_plot(options: InsightsOptions, found: Findings) -> str:
    grid = _time_grid(found)
    series = []
    for name in found.latency:
        by_time = {int(str(row["at_ms"])): row["latency"] for row in found.times if row["topic"] == name}
        for index, quantile in enumerate(QUANTILES):
            values: list[float | None] = []
            for at_ms in grid:
                held = by_time.get(at_ms)
                values.append(float(held[index]) if isinstance(held, list) and held else None)
            label = f"p{quantile * 100:g}"
            series.append(Series(label if len(found.latency) == 1 else f"{name} {label}", values))
    return lines(grid, series, "ms")


PIPELINE: Final = Pipeline(
    name="insights",
    summary="Shows throughput, sizes, hot keys, latency and group lag of topics, as tables and an HTML page",
    about="""\
Reads all messages that the topics hold now. Latency is measured from the time in a message (`sent`) to its timestamp
in the topic. With groups, their lag is shown, and sampled for the duration of `watch`. The page is one
self-contained file.""",
    example="penstock pipeline run insights -o topics=orders -o groups=billing -o page=orders.html\n",
    options=InsightsOptions,
    needs=_needs,
    check=_check,
    run=_run,
)

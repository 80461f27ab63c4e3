"""`python -m bench.spark [--quick]`: format("penstock") against Spark's own Kafka connector, on one broker.

One Spark session on two threads, one Penstock broker, the same topics for both: read them to nowhere, as a batch and
as a stream (`availableNow`), with all columns; and read them and write them to a topic (Penstock's sink in one
transaction for all, the connector's at least once). Both in turn: first for as long as the times of one of them still
fall, then some rounds that count. The result is the median of their ratios. Beside it, what a micro-batch of a single
record takes.
"""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import penstock.spark
from bench.blocking_client import BlockingClient
from bench.broker import topic_name
from bench.cache import scratch
from bench.measure import cpu_s, machine, settle, tree
from bench.peers.spark_connector import VERSION, connector_jars
from bench.penstock import Penstock
from bench.report import AT_LEAST, AT_MOST, Bar, Table, ratio

OURS, THEIRS = "penstock", "kafka"
PARTITIONS: Final = 4
READ_BAR: Final = Bar(sign=AT_LEAST, value=1.5)
CPU_BAR: Final = Bar(sign=AT_MOST, value=1.0)
WRITE_BAR: Final = Bar(sign=AT_LEAST, value=0.8)
DRIVER_MEMORY: Final = "4g"
WARM_UP_ROUNDS: Final = range(3, 16)
"""At least and at most so many rounds do not count."""
STILL_FALLING: Final = 0.97
"""Times still fall when one of the last two rounds took less than this part of the best time before."""
BATCHES: Final = 20
"""Micro-batches of one record each, after a few that warm Spark up."""
WARM_UP: Final = 5
ANSWER_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A topic full of records."""

    records: int
    value_bytes: int
    codec: str

    def __str__(self) -> str:
        return f"{self.records / 1e6:g} million of {self.value_bytes:,} bytes, {self.codec}"


LOADS: Final = tuple(
    Load(records=records, value_bytes=size, codec=codec)
    for records, size, codec in (
        (3_000_000, 100, "none"),
        (3_000_000, 200, "none"),
        (1_000_000, 1024, "none"),
        (1_000_000, 1024, "zstd"),
    )
)


class Bench:
    """A broker, a Spark session, and the CPU time of each process."""

    def __init__(self, broker: Penstock, spark: SparkSession, folder: Path) -> None:
        self._broker = broker
        self._spark = spark
        self._folders = (folder / f"checkpoint-{number}" for number in itertools.count())
        self.bootstrap = f"127.0.0.1:{broker.port}"

    def topic(self) -> str:
        name = topic_name()
        with BlockingClient(self._broker.port) as client:
            client.create_topic(name, PARTITIONS, {})
        return name

    def drop(self, topic: str) -> None:
        self._broker.drop_topic(topic)

    def fill(self, load: Load) -> str:
        """Values are hexadecimal digits: they can be compressed to about a half."""
        topic = self.topic()
        digits = (
            "concat(" + ", ".join(f"sha2(concat(id, '-{n}'), 512)" for n in range(-(-load.value_bytes // 128))) + ")"
        )
        rows = self._spark.range(load.records).selectExpr(
            "cast(id as string) as key", f"substr({digits}, 1, {load.value_bytes}) as value"
        )
        self.written(rows, OURS, topic, load.codec)
        return topic

    def rows(self, source: str, topic: str) -> DataFrame:
        return self._spark.read.format(source).options(**self._reading(topic)).load()

    def read(self, source: str, topic: str) -> None:
        """Reads all columns in one batch, to nowhere."""
        self.rows(source, topic).write.format("noop").mode("overwrite").save()

    def stream(self, source: str, topic: str) -> None:
        """Reads all columns in a query that ends when it has everything, to nowhere."""
        rows = self._spark.readStream.format(source).options(**self._reading(topic)).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(next(self._folders)))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _reading(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }

    def written(self, rows: DataFrame, sink: str, topic: str, codec: str) -> None:
        writer = rows.write.format(sink).option("kafka.bootstrap.servers", self.bootstrap).option("topic", topic)
        writer.option("kafka.compression.type", codec).mode("append").save()

    def micro_batches(self, source: str, sink: str | None) -> list[float]:
        """How long batches of one record take, in milliseconds, by what Spark says of each."""
        topic, target = self.topic(), self.topic()
        reader = self._spark.readStream.format(source).option("kafka.bootstrap.servers", self.bootstrap)
        rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
        writer = rows.select("key", "value").writeStream.option("checkpointLocation", str(next(self._folders)))
        if sink is None:
            writer = writer.format("noop")
        else:
            writer = writer.format(sink).option("kafka.bootstrap.servers", self.bootstrap).option("topic", target)
        query = writer.trigger(processingTime="0 seconds").start()
        took_ms: list[float] = []
        try:
            with penstock.connect(self.bootstrap) as mq:
                for number in range(WARM_UP + BATCHES):
                    mq.publish(topic, b"%d" % number)
                    took_ms.append(_batch(query, number))
        finally:
            query.stop()
            self.drop(topic)
            self.drop(target)
        return took_ms[WARM_UP:]

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far: of the broker, of Spark's Java, and of Python (this program and Spark's workers)."""
        jvm = _jvm()
        everything = cpu_s(os.getpid()) - cpu_s(self._broker.pid)
        java = _own_cpu_s(jvm)
        return {"broker": cpu_s(self._broker.pid), "Java": java, "Python": everything - java}


def _batch(query: Any, number: int) -> float:
    """Wait for the how-manieth batch that has a record; its milliseconds."""
    give_up_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < give_up_s:
        full = [progress for progress in query.recentProgress if progress["numInputRows"] == 1]
        if len(full) > number:
            return float(full[number]["durationMs"]["triggerExecution"])
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.01)
    raise TimeoutError(f"batch {number} has not come")


def _jvm() -> int:
    return next(pid for pid in tree(os.getpid()) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


def _own_cpu_s(pid: int) -> float:
    """Without its descendants. Those that have ended are counted with their parent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    settings = {
        "spark.jars": connector_jars(),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "spark"),
    }
    session = penstock.spark.session("bench", master="local[2]", conf=settings)
    try:
        yield session
    finally:
        session.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of one connector."""

    took_s: float
    cpu_s: dict[str, float]

    @property
    def spark_cpu_s(self) -> float:
        """CPU seconds of Spark's Java and Python."""
        return sum(self.cpu_s.values()) - self.cpu_s["broker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The runs of both connectors that count, and how many rounds came before them."""

    runs: dict[str, list[Run]]
    uncounted: int


def measure(bench: Bench, work: Callable[[str], None], rounds: int) -> Found:
    """Both formats in turn: until their times no longer fall, and then so many rounds that count."""
    runs: dict[str, list[Run]] = {OURS: [], THEIRS: []}

    def do_round() -> None:
        for name in (OURS, THEIRS):
            settle()
            before, began_s = bench.cpu(), time.perf_counter()
            work(name)
            took_s, after = time.perf_counter() - began_s, bench.cpu()
            runs[name].append(Run(took_s=took_s, cpu_s={who: after[who] - before[who] for who in after}))

    while not _is_warm([[run.took_s for run in each] for each in runs.values()]):
        do_round()
    uncounted = len(runs[OURS])
    for _ in range(rounds):
        do_round()
    return Found(runs={name: each[uncounted:] for name, each in runs.items()}, uncounted=uncounted)


def _is_warm(times_s: list[list[float]]) -> bool:
    done = len(times_s[0])
    if done < WARM_UP_ROUNDS.start:
        return False
    falls = any(min(each[-2:]) < STILL_FALLING * min(each[:-2]) for each in times_s)
    return not falls or done >= WARM_UP_ROUNDS.stop


def row_of(table: Table, load: Load, found: Found, bar: Bar) -> tuple[str, ...]:
    ours, theirs = found.runs[OURS], found.runs[THEIRS]
    figure, text = ratio([run.took_s for run in theirs], [run.took_s for run in ours])
    cpu, cpu_text = ratio([run.spark_cpu_s for run in ours], [run.spark_cpu_s for run in theirs])
    rates = (f"{load.records / median(run.took_s for run in runs):,.0f}" for runs in (ours, theirs))
    spent = (
        ", ".join(f"{who} {median(run.cpu_s[who] for run in runs):.1f}" for who in runs[0].cpu_s)
        for runs in (ours, theirs)
    )
    verdicts = (table.verdict(str(load), figure, bar), table.verdict(f"CPU, {load}", cpu, CPU_BAR))
    return str(load), *rates, text, verdicts[0], cpu_text, verdicts[1], *spent, str(found.uncounted)


COLUMNS: Final = (
    *("records", "penstock, rows/s", "kafka, rows/s", "ratio", "bar", "Spark's CPU, penstock to kafka", "bar"),
    *("penstock's CPU s", "kafka's CPU s", "rounds before"),
)


def tables(bench: Bench, rounds: int, scale: float, tell: Callable[[str], None]) -> list[Table]:
    reading = Table(slug="spark-read", title="Reading a topic as a batch (to noop)", columns=COLUMNS)
    streaming = Table(slug="spark-stream", title="Reading a topic as a stream (to noop)", columns=COLUMNS)
    writing = Table(slug="spark-write", title="Reading a topic and writing it to another", columns=COLUMNS)
    for load in LOADS:
        load = Load(records=int(load.records * scale), value_bytes=load.value_bytes, codec=load.codec)
        tell(f"filling: {load}")
        topic = bench.fill(load)

        def copy(name: str, topic: str = topic, codec: str = load.codec) -> None:
            target = bench.topic()
            bench.written(bench.rows(name, topic).select("key", "value"), name, target, codec)
            bench.drop(target)

        works = (
            (reading, READ_BAR, partial(bench.read, topic=topic)),
            (streaming, READ_BAR, partial(bench.stream, topic=topic)),
            (writing, WRITE_BAR, copy),
        )
        for table, bar, work in works:
            tell(table.title)
            table.rows.append(row_of(table, load, measure(bench, work, rounds), bar))
            tell(" ".join(table.rows[-1]))
        bench.drop(topic)
    writing.notes.append("Penstock's sink writes all or nothing; the connector's writes at least once.")
    return [reading, streaming, writing, micro_batches(bench, tell)]


def micro_batches(bench: Bench, tell: Callable[[str], None]) -> Table:
    """Spark runs no batch when nothing has come: one record is the least that there is."""
    table = Table(
        slug="spark-batches",
        title="A micro-batch of one record",
        columns=("from a topic to", "penstock, ms", "kafka, ms", "ratio (higher is faster)"),
    )
    for what, sinks in (("noop", (None, None)), ("a topic", (OURS, THEIRS))):
        tell(f"micro-batches to {what}")
        ours, theirs = bench.micro_batches(OURS, sinks[0]), bench.micro_batches(THEIRS, sinks[1])
        table.rows.append(
            (what, f"{median(ours):,.0f}", f"{median(theirs):,.0f}", f"**{median(theirs) / median(ours):.2f}**")
        )
    table.notes.append(f"The median of {BATCHES}, by Spark's own count (triggerExecution), after {WARM_UP} others.")
    return table


@click.command()
@click.option("--rounds", default=5, show_default=True, help="That count, after those that warm Spark up.")
@click.option("--quick", is_flag=True, help="A twentieth of the records, once: to see that it works.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where the results go as well.")
def main(rounds: int, quick: bool, output: Path | None) -> None:
    """Measure format("penstock") against Spark's own Kafka connector."""
    console = Console(stderr=True)
    began_s = time.monotonic()
    with scratch("spark") as folder:
        broker = Penstock(folder / "broker")
        broker.start()
        try:
            with spark_session(folder) as spark:
                found = tables(
                    Bench(broker, spark, folder),
                    1 if quick else rounds,
                    0.05 if quick else 1.0,
                    lambda text: console.print(f"[dim]{time.monotonic() - began_s:5.0f} s[/] {text}"),
                )
                spark_version = spark.version
        finally:
            broker.stop()
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    text = "\n".join(
        [
            "# Spark",
            "",
            f"Written by `python -m bench.spark{' --quick' if quick else ''}` on {time.strftime('%Y-%m-%d')}: "
            f"{facts}; Spark {spark_version} on local[2], its Kafka connector {VERSION}; {PARTITIONS} partitions; "
            "broker, Spark and Python share the machine. Ratios are of runs that followed each other, the median of "
            f"{1 if quick else rounds} with the lowest and the highest, after as many rounds as it took until "
            "neither became faster.",
            "",
            *(table.markdown() for table in found),
        ]
    )
    if output is not None:
        output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

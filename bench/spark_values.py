"""`python -m bench.spark_values [--quick]`: typed values in Spark, records of ten fields from and to a topic.

One Spark session on two threads and one Penstock broker, whose registry has the schemas. For each format: write a
DataFrame of ten columns to a topic (at least once), and read it back to nowhere with all fields decoded. `binary` is
the same Avro topic without decoding: the rest of the time is that of the format.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import click
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

import penstock.spark
from bench.blocking_client import BlockingClient
from bench.broker import topic_name
from bench.cache import scratch
from bench.measure import cpu_s, machine, settle
from bench.penstock import Penstock
from bench.report import AT_LEAST, Bar, Table

RECORDS: Final = 3_000_000
PARTITIONS: Final = 4
FORMATS: Final = ("avro", "protobuf", "json-schema")
BAR: Final = Bar(sign=AT_LEAST, value=300_000, unit=" rows/s")
FIELDS: Final = (
    "id",
    "concat('item ', id % 1000) AS item",
    "id * 0.25D AS price",
    "id % 2 = 0 AS paid",
    "timestamp_micros(1769860800000000 + id) AS at",
    "concat('customer-', id % 5000) AS customer",
    "cast(id % 7 AS INT) AS quantity",
    "if(id % 3 = 0, NULL, 'a note') AS note",
    "date_from_unix_date(cast(20000 + id % 1000 AS INT)) AS due",
    "element_at(array('new', 'sent', 'done'), cast(1 + id % 3 AS INT)) AS state",
)


class Bench:
    def __init__(self, broker: Penstock, spark: SparkSession, records: int) -> None:
        self._broker = broker
        self._records = records
        self._options = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}"}
        self._registry = {"schemaRegistry": f"http://127.0.0.1:{broker.http_port}/registry"}
        self._spark = spark

    def topic(self) -> str:
        name = topic_name()
        with BlockingClient(self._broker.port) as client:
            client.create_topic(name, PARTITIONS, {})
        return name

    def write(self, topic: str, format: str) -> None:
        rows = self._spark.range(0, self._records, 1, PARTITIONS).selectExpr(*FIELDS)
        if format == "json-schema":  # JSON has no dates: written as texts, they would be read as texts
            rows = rows.withColumn("due", rows["due"].cast("string")).withColumn("at", rows["at"].cast("string"))
        elif format == "protobuf":  # Protobuf has no dates
            rows = rows.withColumn("due", rows["due"].cast("string"))
        writer = rows.write.format("penstock").options(**self._options, **self._registry, valueFormat=format)
        writer.options(topic=topic, delivery="at-least-once").mode("append").save()

    def read(self, topic: str, format: str) -> None:
        options = {} if format == "binary" else {**self._registry, "valueFormat": format}
        frame: DataFrame = (
            self._spark.read.format("penstock").options(**self._options, **options, subscribe=topic).load()
        )
        frame.select("value").write.format("noop").mode("overwrite").save()

    def cpu_s(self) -> float:
        """CPU seconds of Spark's JVM and Python so far, without the broker."""
        return cpu_s(os.getpid()) - cpu_s(self._broker.pid)


def run(bench: Bench, records: int, rounds: int, tell: Callable[[str], None]) -> Table:
    columns = ("format", "written, rows/s", "read, rows/s", "CPU of reading, µs per row", "bar")
    table = Table(slug="spark-values", title="Records of ten fields", columns=columns)
    for format in FORMATS:
        topics = [bench.topic() for _ in range(rounds + 1)]
        written_s = [_timed(partial(bench.write, topic, format)) for topic in topics][1:]
        for name in ("binary", format) if format == "avro" else (format,):
            found = [_read(bench, topics[0], name) for _ in range(rounds + 1)][1:]
            rate = records / median(took_s for took_s, _ in found)
            spent = 1e6 * median(used_s for _, used_s in found) / records
            is_measured = name == "avro"
            table.rows.append(
                (
                    name,
                    "" if name == "binary" else f"{records / median(written_s):,.0f}",
                    f"{rate:,.0f}",
                    f"{spent:.2f}",
                    table.verdict(name, rate, BAR) if is_measured else "",
                )
            )
            tell(" ".join(table.rows[-1]))
    return table


def _timed(work: Callable[[], None]) -> float:
    settle()
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _read(bench: Bench, topic: str, format: str) -> tuple[float, float]:
    """Returns the seconds of a read, and its CPU seconds."""
    before_s = bench.cpu_s()
    return _timed(partial(bench.read, topic, format)), bench.cpu_s() - before_s


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--quick", is_flag=True, help="A twentieth of the records, once: to see that it works.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Where the results go as well.")
def main(rounds: int, quick: bool, output: Path | None) -> None:
    """Measure typed values in Spark."""
    console = Console(stderr=True)
    records, rounds = (RECORDS // 20, 1) if quick else (RECORDS, rounds)
    with scratch("spark-values") as folder:
        broker = Penstock(folder / "broker")
        broker.start()
        try:
            conf = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "spark")}
            spark = penstock.spark.session("bench", master="local[2]", conf=conf)
            table = run(Bench(broker, spark, records), records, rounds, lambda text: console.print(f"[dim]{text}[/]"))
            version = spark.version
            spark.stop()
        finally:
            broker.stop()
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    text = "\n".join(
        [
            "# Typed values in Spark",
            "",
            f"Written by `python -m bench.spark_values{' --quick' if quick else ''}` on {time.strftime('%Y-%m-%d')}: "
            f"{facts}; Spark {version} on local[2]; {records:,} records in {PARTITIONS} partitions, the median of "
            f"{rounds}; broker, Spark and Python share the machine.",
            "",
            table.markdown(),
        ]
    )
    if output is not None:
        output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

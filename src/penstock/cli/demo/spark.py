"""The Spark chapters of `penstock demo`: streaming SQL, a SQL table, Delta archive, audit and insights."""

import json
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.pipeline.screen import LineDisplay, show_report
from penstock.cli.supervisor import PENSTOCK
from penstock.spark.java import JavaMissing, provide_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.pipeline import Report
    from penstock.spark.pipelines.query_progress import Batch

ORDERS: Final = 6000
A_SECOND: Final = 300
ITEMS: Final = (("valve", 40), ("pipe", 12), ("pump", 310), ("gate", 95), ("turbine", 2400))
TOTALS: Final = """\
name: totals
bootstrap: {bootstrap}
sources:
  shop:
    topic: shop
    schema: id BIGINT, item STRING, price DOUBLE, at BIGINT
sql: |
  SELECT item, count(*) AS orders, sum(price) AS revenue FROM shop GROUP BY item
sink: {{topic: totals, key: item, mode: update}}
trigger: 500 ms
"""
PAYMENTS_TABLE: Final = """\
CREATE TABLE payments USING penstock OPTIONS (
    `kafka.bootstrap.servers` '{bootstrap}', topic 'payments',
    valueFormat 'avro', schemaRegistry '{registry}')"""
PAYMENTS: Final = """\
INSERT INTO payments (key, value)
SELECT cast(customer AS BINARY), named_struct('customer', customer, 'amount', amount)
FROM VALUES ('ann', 12.5D), ('bob', 3D), ('ann', 7.5D) AS paid(customer, amount)"""
PAYMENTS_BY_CUSTOMER: Final = """\
SELECT value.customer, sum(value.amount) AS paid FROM payments GROUP BY value.customer ORDER BY paid DESC"""


def find_missing_requirement() -> str | None:
    """Returns the missing requirement of the tour's Spark chapters and how to install it; None if none is missing."""
    for name in ("pyspark", "pyarrow", "deltalake"):
        if find_spec(name) is None:
            return f"{name} is not installed: pip install 'penstock[spark]'"
    try:
        provide_java()
    except JavaMissing as error:
        return error.message
    return None


class Shop:
    """Publishes orders at a steady rate with `penstock publish`, in the background."""

    def __init__(self, bootstrap: str) -> None:
        command = [PENSTOCK, "publish", "shop", "--key-separator", ":", "--bootstrap", bootstrap]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self._thread = threading.Thread(target=self._publish_orders, daemon=True)
        self._thread.start()

    def _publish_orders(self) -> None:
        assert self._process.stdin is not None
        rng = Random(42)
        began_s = time.monotonic()
        with self._process.stdin as orders:
            for number in range(ORDERS):
                item, price = rng.choices(ITEMS, weights=(9, 14, 5, 4, 1))[0]
                customer = min(int(rng.paretovariate(0.9)), 200)
                order = {"id": number, "item": item, "price": price, "at": round(time.time() * 1000)}
                orders.write(f"customer-{customer}:{json.dumps(order)}\n")
                if number % (A_SECOND // 10) == 0:
                    orders.flush()
                    time.sleep(max(0.0, began_s + number / A_SECOND - time.monotonic()))

    def close(self) -> None:
        """Waits until every order is acknowledged; raises ClickException if publishing failed."""
        self._thread.join()
        if self._process.wait() != 0:
            raise click.ClickException("the orders could not be published; see above")


class Pipelines:
    """Runs pipelines in one Spark session: starting Spark takes longer than running a pipeline."""

    def __init__(self, spark: "SparkSession", bootstrap: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap

    def run(self, target: str, *options: str, until: int | None = None, quietly: bool = False) -> "Report":
        """Runs a pipeline until it ends or, if `until` is given, has read that many rows. Raises ClickException if
        the pipeline fails."""
        from penstock.spark.pipelines.catalogue import check_clusters, load
        from penstock.spark.pipelines.pipeline import Run
        from penstock.spark.pipelines.runner import run_prepared

        shown = [word for option in options for word in ("-o", option)]
        mode = ["--once"] if until is None else ["--continuous"]
        name = Path(target).name
        click.secho(f"  $ penstock pipeline run {shlex.join([name, *shown, *mode])}", fg="cyan")
        pairs = [(option.partition("=")[0], option.partition("=")[2]) for option in options]
        loaded = load(target, pairs, self._bootstrap)
        check_clusters(loaded)
        stopping = threading.Event()
        rows = [0]
        display = LineDisplay(as_json=False)

        def on_batch(batch: "Batch") -> None:
            display.batch(batch)
            rows[0] += batch.rows
            if until is not None and rows[0] >= until:
                stopping.set()

        run = Run(
            spark=self._spark,
            once=until is None,
            on_batch=on_batch,
            on_step=lambda step: None,
            base=loaded.base,
            stopping=stopping,
        )
        report = run_prepared(loaded, run)
        if not quietly:
            show_report(report)
        if not report.is_ok:
            raise click.ClickException(report.verdict)
        return report


def run_chapters(bootstrap: str, registry: str, folder: Path, chapter: "Sequence[str]") -> None:
    """Opens a Spark session and runs all Spark chapters of the tour. `chapter`: their headings, in order."""
    from penstock.spark.sessions import open_session

    click.secho(f"\n{chapter[0]}", bold=True)
    began_s = time.monotonic()
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = open_session("demo", conf=conf, log=folder / "spark.log")
    click.echo(f"  Spark started in {time.monotonic() - began_s:.0f} s; {A_SECOND} orders per second are published")
    try:
        pipelines = Pipelines(spark, bootstrap)
        _count_orders(pipelines, Shop(bootstrap), bootstrap, folder)
        click.secho(f"\n{chapter[1]}", bold=True)
        _show_table(spark, bootstrap, registry)
        click.secho(f"\n{chapter[2]}", bold=True)
        lake = folder / "lake"
        pipelines.run("archive", "topics=shop", f"path={lake}", "format=delta", "schema=infer")
        click.secho(f"\n{chapter[3]}", bold=True)
        pipelines.run("audit", "expected.topic=shop", f"actual.path={lake}")
        click.secho(f"\n{chapter[4]}", bold=True)
        page = Path(tempfile.mkdtemp(prefix="penstock-demo-page-")) / "penstock-demo.html"  # it outlives the tour
        sent = "cast(get_json_object(cast(value AS string), '$.at') AS bigint)"
        pipelines.run("insights", "topics=shop,totals", f"sent={sent}", f"page={page}")
    finally:
        spark.stop()


def _count_orders(pipelines: Pipelines, shop: Shop, bootstrap: str, folder: Path) -> None:
    """Counts orders per item into a topic while they are published, and checks the sum."""
    file = folder / "totals.yaml"
    file.write_text(TOTALS.format(bootstrap=bootstrap))
    checkpoint = f"checkpoint={folder}/checkpoint"
    pipelines.run(str(file), checkpoint, until=ORDERS, quietly=True)
    shop.close()
    schema = "sources.totals.schema=item STRING, orders BIGINT, revenue DOUBLE"
    latest = (
        "SELECT _key AS item, max(orders) AS orders, max(revenue) AS revenue, "
        "repeat('█', cast(30 * max(orders) / 2600 AS int)) AS ` ` FROM totals GROUP BY _key ORDER BY revenue DESC"
    )
    report = pipelines.run("sql", "sources.totals.topic=totals", schema, f"sql={latest}")
    counted = sum(int(str(row[1])) for row in report.tables[0].rows)
    if counted != ORDERS:
        raise click.ClickException(f"{ORDERS} orders were published, {counted} were counted")
    click.secho(f"  {ORDERS} orders were published, {counted} were counted", fg="green")


def _show_table(spark: "SparkSession", bootstrap: str, registry: str) -> None:
    """Creates a SQL table over a topic, inserts three payments, and shows their sums."""
    for text in (PAYMENTS_TABLE.format(bootstrap=bootstrap, registry=registry), PAYMENTS):
        _show_sql(text)
        spark.sql(text)
    _show_sql(PAYMENTS_BY_CUSTOMER)
    rows = spark.sql(PAYMENTS_BY_CUSTOMER).collect()
    for row in rows:
        click.echo(f"  {row.customer:<10} {row.paid:>8.2f}")
    if [(row.customer, row.paid) for row in rows] != [("ann", 20.0), ("bob", 3.0)]:
        raise click.ClickException(f"expected 20 of ann and 3 of bob, found {rows}")


def _show_sql(text: str) -> None:
    click.secho("\n".join(f"  {line}" for line in f"spark-sql> {text};".splitlines()), fg="cyan")

"""`penstock pipeline shell`: an interactive Python prompt with a Spark session and topics as tables."""

import code
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import bootstrap_option
from penstock.cli.pipeline.screen import LineDisplay
from penstock.spark.connect import is_connect, without_token
from penstock.spark.sessions import choose_master, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@click.command()
@click.argument("topics", nargs=-1)
@click.option(
    "--master", metavar="URL", help="Spark master, or a Spark Connect server. Default: SPARK_REMOTE, local[*]."
)
@bootstrap_option
def shell(topics: tuple[str, ...], master: str | None, bootstrap: str) -> None:
    """Open a Python prompt with `spark`, `topic(NAME)` and `stream(NAME)`. TOPICS become tables for SQL.

    \b
    Examples:
      penstock pipeline shell orders
      >>> topic("orders").groupBy("key").count().show()
      >>> spark.sql("SELECT partition, count(*) FROM orders GROUP BY partition").show()
    """
    where = choose_master(master, None)
    steps = LineDisplay(as_json=False)
    steps.step(f"connecting to {without_token(where)}" if is_connect(where) else f"starting Spark on {where}")
    spark = open_session("shell", master=where)
    names = {"spark": spark, "topic": _reader(spark.read, bootstrap), "stream": _reader(spark.readStream, bootstrap)}
    for each in topics:
        steps.step(f"reading the schema of {each}")
        _create_view(spark, each, bootstrap)
    tables = f"; SQL tables: {', '.join(topics)}" if topics else ""
    banner = f"Spark {spark.version} on {without_token(where)}. Names: spark, topic(NAME), stream(NAME){tables}"
    try:
        _interact(names, banner)
    finally:
        spark.stop()


def _reader(reader: Any, bootstrap: str) -> "Callable[..., DataFrame]":
    def read(name: str, **options: str) -> "DataFrame":
        """Reads a topic; key and value are text."""
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, **options}
        frame: DataFrame = reader.format("penstock").options(**given).load()
        return frame.withColumn("key", frame["key"].cast("string")).withColumn("value", frame["value"].cast("string"))

    return read


def _create_view(spark: "SparkSession", topic: str, bootstrap: str) -> None:
    """Creates a temporary view with the name of the topic, in which keys and values are text."""
    _reader(spark.read, bootstrap)(topic).createOrReplaceTempView(f"`{topic}`")


def _interact(names: dict[str, Any], banner: str) -> None:
    console = code.InteractiveConsole(names)
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline
            import rlcompleter

            readline.set_completer(rlcompleter.Completer(names).complete)
            readline.parse_and_bind("tab: complete")
    console.interact(banner, exitmsg="")

"""`penstock pipeline server`: keeps a Spark Connect server running, on which pipelines start at once."""

import time

import click

from penstock.cli.common import Pairs, echo_json, echo_result, json_option, pairs_option
from penstock.cli.pipeline.screen import LineDisplay
from penstock.spark import warm_server
from penstock.spark.connect import PORT_DEFAULT
from penstock.spark.sessions import MASTER_DEFAULT


@click.group()
def server() -> None:
    """Keep Spark running between pipelines, so that they start at once.

    \b
    Examples:
      penstock pipeline server start
      penstock pipeline run totals.yaml --master sc://localhost
      penstock pipeline server stop
    """


@server.command()
@click.option("--master", default=MASTER_DEFAULT, show_default=True, metavar="URL", help="Spark master.")
@click.option(
    "--port", default=PORT_DEFAULT, show_default=True, type=click.IntRange(1, 65535), help="Port to listen on."
)
@pairs_option("-s", "--setting", "conf", help="A Spark setting, such as spark.driver.memory=4g. Repeatable.")
@json_option
def start(master: str, port: int, conf: Pairs, as_json: bool) -> None:
    """Start a Spark Connect server on the loopback interface, and leave it running. It asks for a token.

    Only this user can read the token; `penstock` and `penstock.spark.session` find it.

    \b
    Examples:
      penstock pipeline server start
      penstock pipeline server start --master spark://host:7077 -s spark.executor.memory=4g
    """
    began_s = time.monotonic()
    LineDisplay(as_json).step(f"starting a Spark Connect server on {master}")
    started = warm_server.start(master, port=port, conf=dict(conf))
    seconds = round(time.monotonic() - began_s, 1)
    echo_result(
        {"ok": True, "address": started.address, "pid": started.pid, "log": started.log, "seconds": seconds},
        f"Spark is ready at {started.address} after {seconds} s (pid {started.pid}); use it with --master "
        f"{started.address}, or set SPARK_REMOTE={started.address}",
        as_json=as_json,
    )


@server.command()
@json_option
def stop(as_json: bool) -> None:
    """Stop the server, and the pipelines that run on it.

    \b
    Examples:
      penstock pipeline server stop
    """
    stopped = warm_server.stop()
    text = "no server is running" if stopped is None else f"stopped the server at {stopped.address}"
    echo_result({"ok": True, "stopped": stopped is not None}, text, as_json=as_json)


@server.command()
@json_option
def status(as_json: bool) -> None:
    """Show whether the server runs, and where. Exit code 1: it does not.

    \b
    Examples:
      penstock pipeline server status
    """
    found = warm_server.find()
    if found is None:
        if as_json:
            echo_json({"running": False})
        else:
            click.echo("no server is running; start one with `penstock pipeline server start`")
        raise click.exceptions.Exit(1)
    minutes = (time.time_ns() // 1_000_000 - found.started_at_ms) // 60_000
    echo_result(
        {"running": True, "address": found.address, "master": found.master, "pid": found.pid, "log": found.log},
        f"Spark ({found.master}) is ready at {found.address} since {minutes} min (pid {found.pid}, log {found.log})",
        as_json=as_json,
    )

"""`penstock serve`: one broker in one process."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import uvloop

from penstock.foundation.errors import PenstockError
from penstock.node import Address, Node, NodeSettings

_FILE_KEYS = {"data_dir", "listen", "advertise", "http", "node_id", "store", "session_s", "broker"}


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where everything is kept.  [./penstock-data]")
@click.option("--listen", metavar="HOST:PORT", help="Where Kafka clients connect.  [127.0.0.1:9092]")
@click.option("--advertise", metavar="HOST:PORT", help="The address clients are told, if it is another one.")
@click.option("--http", metavar="HOST:PORT", help="Health, metrics and queues.  [127.0.0.1:9324]")
@click.option("--node-id", type=click.IntRange(0, 2**31 - 1), help="This broker's number.  [1]")
@click.option("--store", metavar="URL", help="Where the cluster is kept: zookeeper://…, etcd://….  [embedded]")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A penstock.toml file.")
@click.option(
    "--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True
)
def serve(
    data_dir: Path | None,
    listen: str | None,
    advertise: str | None,
    http: str | None,
    node_id: int | None,
    store: str | None,
    config: Path | None,
    log_level: str,
) -> None:
    """Run a broker: one process, nothing else to install or configure.

    \b
    Examples:
      penstock serve
      penstock serve --data-dir /var/lib/penstock --listen 0.0.0.0:9092 --advertise queue.example.org:9092
      penstock serve --node-id 2 --store zookeeper://zk-1:2181,zk-2:2181,zk-3:2181/penstock
      penstock serve --config penstock.toml

    A penstock.toml holds the same options (data_dir, listen, advertise, http, node_id, store; also session_s) and, in
    a table [broker], Kafka's broker settings by name, for example "log.retention.ms" = 86400000. Options given here
    win over the file.
    """
    options = {
        "data_dir": data_dir,
        "listen": listen,
        "advertise": advertise,
        "http": http,
        "node_id": node_id,
        "store": store,
    }
    try:
        settings = read_settings(config, {name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    logging.basicConfig(
        level=log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s level=%(levelname)s room=%(name)s event=%(message)s",
    )
    try:
        uvloop.run(run(settings))
    except PenstockError as error:
        raise click.ClickException(str(error)) from error


def read_settings(file: Path | None, options: dict[str, Any]) -> NodeSettings:
    """The file's settings, overridden by the options. ValueError says what is wrong."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file}: {error}") from error
        unknown = sorted(set(values) - _FILE_KEYS)
        if unknown:
            raise ValueError(f"{file}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_FILE_KEYS))}")
    values |= options
    found: dict[str, Any] = {}
    for name in ("listen", "advertise", "http"):
        if name in values:
            found[name] = Address.parse(str(values[name]))
    if "data_dir" in values:
        found["data_dir"] = Path(values["data_dir"])
    if "node_id" in values:
        found["node_id"] = int(values["node_id"])
    if "store" in values:
        found["store"] = str(values["store"])
    if "session_s" in values:
        found["session_s"] = float(values["session_s"])
    return NodeSettings(settings={name: _text(value) for name, value in values.get("broker", {}).items()}, **found)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def run(settings: NodeSettings) -> None:
    """Run until told to stop."""
    _raise_file_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    failures: list[PenstockError] = []

    def fail(error: PenstockError) -> None:
        failures.append(error)
        stop.set()

    node = Node(settings, on_failure=fail)
    await node.start()
    # What start-up left behind lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    click.echo(
        f"penstock is ready: kafka {node.listen}, http {node.http}, data {settings.data_dir}, pid {os.getpid()}"
    )
    await stop.wait()
    click.echo("penstock is stopping")
    await node.stop()
    if failures:
        raise failures[0]


def _raise_file_limit() -> None:
    """Every connection and every segment takes a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

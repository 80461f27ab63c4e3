"""`penstock serve`: one broker in one process, or several of a cluster in as many."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
import uvloop

from penstock.cli.common import parse_pairs
from penstock.cli.log_bounds import LogBounds
from penstock.foundation.errors import PenstockError
from penstock.node import Address, Node, NodeSettings

_FILE_KEYS = {
    "data_dir",
    "listen",
    "advertise",
    "http",
    "credentials",
    "node_id",
    "store",
    "session_s",
    "processes",
    "broker",
}
PROCESSES_MAX = 64


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where everything is kept.  [./penstock-data]")
@click.option("--listen", metavar="HOST:PORT", help="Where Kafka clients connect.  [127.0.0.1:9092]")
@click.option("--advertise", metavar="HOST:PORT", help="The address clients are told, if it is another one.")
@click.option("--http", metavar="HOST:PORT", help="Health, metrics and queues.  [127.0.0.1:9324]")
@click.option(
    "--credentials",
    type=click.Path(path_type=Path),
    help="Access keys for queues, YAML or JSON: requests must be signed.  [none]",
)
@click.option("--node-id", type=click.IntRange(0, 2**31 - 1), help="This broker's number.  [1]")
@click.option("--store", metavar="URL", help="Where the cluster is kept: zookeeper://…, etcd://….  [embedded]")
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    help="Run so many brokers of a cluster: numbers and ports count up.  [1]",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    callback=parse_pairs,
    metavar="NAME=VALUE",
    help="A broker setting, by Kafka's name. Repeat for more.",
)
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A penstock.toml file.")
@click.option(
    "--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True
)
def serve(
    data_dir: Path | None,
    listen: str | None,
    advertise: str | None,
    http: str | None,
    credentials: Path | None,
    node_id: int | None,
    store: str | None,
    processes: int | None,
    pairs: list[tuple[str, str]],
    config: Path | None,
    log_level: str,
) -> None:
    """Run a broker: one process, nothing else to install or configure.

    \b
    Examples:
      penstock serve
      penstock serve --data-dir /var/lib/penstock --listen 0.0.0.0:9092 --advertise queue.example.org:9092
      penstock serve --node-id 2 --store zookeeper://zk-1:2181,zk-2:2181,zk-3:2181/penstock
      penstock serve --processes 4 --store etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379/penstock
      penstock serve --config penstock.toml --set log.retention.ms=86400000
      penstock serve --http 0.0.0.0:9324 --credentials keys.yaml

    A penstock.toml holds the same options (data_dir, listen, advertise, http, credentials, node_id, store, processes;
    also session_s) and, in a table [broker], Kafka's broker settings by name, for example
    "log.retention.ms" = 86400000. Options given here win over the file.
    """
    options = {
        "data_dir": data_dir,
        "listen": listen,
        "advertise": advertise,
        "http": http,
        "credentials": credentials,
        "node_id": node_id,
        "store": store,
        "processes": processes,
    }
    try:
        values = read_values(config, {name: value for name, value in options.items() if value is not None})
        settings, count = read_settings(values, dict(pairs)), _read_count(values)
        work = run(settings) if count == 1 else _run_processes(settings, count, config, dict(pairs), log_level)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    who = f"node={settings.node_id}" if count == 1 else f"processes={count}"
    logging.basicConfig(
        level=log_level.upper(),
        stream=sys.stderr,
        format=f"%(asctime)s level=%(levelname)s {who} room=%(name)s event=%(message)s",
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogBounds(time.monotonic))
    try:
        uvloop.run(work)
    except PenstockError as error:
        raise click.ClickException(str(error)) from error


def _run_processes(
    settings: NodeSettings, count: int, config: Path | None, options: dict[str, str], log_level: str
) -> Coroutine[Any, Any, None]:
    from penstock.cli.processes import check_folder, run_processes, shares  # one broker does without

    shares(settings, count)  # what is wrong is said before anything is started
    check_folder(settings.data_dir)
    return run_processes(settings, count, config, options, log_level)


def read_values(file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """What the file says, overridden by the options. ValueError says what is wrong."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file}: {error}") from error
        unknown = sorted(set(values) - _FILE_KEYS)
        if unknown:
            raise ValueError(f"{file}: unknown key {unknown[0]!r}; known are {', '.join(sorted(_FILE_KEYS))}")
    return values | options


def read_settings(values: dict[str, Any], broker: dict[str, str]) -> NodeSettings:
    """How a node runs. `broker`: settings that win over those of the file. ValueError says what is wrong."""
    found: dict[str, Any] = {}
    for name in ("listen", "advertise", "http"):
        if name in values:
            found[name] = Address.parse(str(values[name]))
    for name in ("data_dir", "credentials"):
        if name in values:
            found[name] = Path(values[name])
    if "node_id" in values:
        found["node_id"] = int(values["node_id"])
    if "store" in values:
        found["store"] = str(values["store"])
    if "session_s" in values:
        found["session_s"] = float(values["session_s"])
    settings = {name: _text(value) for name, value in values.get("broker", {}).items()}
    return NodeSettings(settings=settings | broker, **found)


def _read_count(values: dict[str, Any]) -> int:
    count = int(values.get("processes", 1))
    if not 1 <= count <= PROCESSES_MAX:
        raise ValueError(f"processes = {count} is not allowed; expected 1 to {PROCESSES_MAX}")
    return count


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
    if not await _start_unless_told(node, stop):
        click.echo("penstock is stopping")
        return
    if settings.credentials is not None:
        loop.add_signal_handler(signal.SIGHUP, node.reread_credentials)
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


async def _start_unless_told(node: Node, stop: asyncio.Event) -> bool:
    """Start; False if told to stop before that was done. A store that does not answer may be waited for."""
    starting, telling = asyncio.create_task(node.start()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, telling), return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    return True


def _raise_file_limit() -> None:
    """Every connection and every segment takes a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

"""`penstock serve`: options, logging, start-up errors, signals and shutdown of a broker."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from penstock.cli.common import Pairs, pairs_option
from penstock.cli.serve.listeners import listener_options
from penstock.cli.serve.log_limit import LogRateLimit
from penstock.cli.serve.settings import NODE_ID_MAX, PROCESSES_MAX, read_processes, read_settings, read_values
from penstock.coordination.store import StoreUnavailable
from penstock.foundation.collector import Collector
from penstock.foundation.errors import InvalidConfig, PenstockError, StorageError
from penstock.node import Node, NodeSettings

logger = logging.getLogger(__name__)

FREE_BYTES_MIN: Final = 1 << 20
"""Free disk space, in bytes, below which a broker that cannot start reports a full disk as the cause."""


class CannotStart(PenstockError):
    """The broker cannot start because the operating system refuses the use of a file or folder."""


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder for all data.  [./penstock-data]")
@click.option("--listen", metavar="HOST:PORT", help="Listen address for Kafka clients.  [127.0.0.1:9092]")
@click.option("--advertise", metavar="HOST:PORT", help="Address that clients connect to, if not --listen.")
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME://HOST:PORT[=HOST:PORT]",
    help="A listener, and the address that clients connect to. Repeatable; in place of --listen and --advertise.",
)
@click.option("--http", metavar="HOST:PORT", help="Listen address for SQS, health and metrics.  [127.0.0.1:9324]")
@click.option(
    "--credentials",
    type=click.Path(path_type=Path),
    help="YAML or JSON file of access keys; SQS requests must then be signed.  [none]",
)
@click.option("--node-id", type=click.IntRange(0, NODE_ID_MAX), help="Node id of this broker.  [1]")
@click.option("--store", metavar="URL", help="Store of the cluster's metadata: zookeeper://…, etcd://….  [embedded]")
@click.option("--store-config", type=click.Path(path_type=Path), help="Properties for TLS and a login at the store.")
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    help="Number of broker processes; node ids and ports count up.  [1]",
)
@pairs_option("--set", "pairs", help="Set a broker setting by its Kafka name. Repeatable.")
@click.option("--strict-config", is_flag=True, default=None, help="Refuse unknown settings in the --config file.")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A penstock.toml file.")
@click.option(
    "--log-level", default="info", type=click.Choice(["debug", "info", "warning", "error"]), show_default=True
)
def serve(
    listeners: tuple[str, ...],
    pairs: Pairs,
    config: Path | None,
    log_level: str,
    **given: Any,
) -> None:
    """Run a broker. It is one process, without other services to install or configure.

    \b
    Examples:
      penstock serve
      penstock serve --data-dir /var/lib/penstock --listen 0.0.0.0:9092 --advertise queue.example.org:9092
      penstock serve --node-id 2 --store zookeeper://zk-1:2181,zk-2:2181,zk-3:2181/penstock
      penstock serve --processes 4 --store etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379/penstock
      penstock serve --config penstock.toml --set log.retention.ms=86400000
      penstock serve --http 0.0.0.0:9324 --credentials keys.yaml
      penstock serve --listener PLAINTEXT://127.0.0.1:9092 --listener SSL://0.0.0.0:9093=queue.example.org:9093 \\
        --set ssl.keystore.location=server.pem

    A penstock.toml holds the same options (data_dir, listen, advertise, http, credentials, node_id, store,
    store_config, processes, strict_config; also session_s) and, in a table [broker], Kafka's broker settings by name,
    for example "log.retention.ms" = 86400000. Command-line options override the file. A Kafka setting that has no
    effect or is unknown is logged as a warning; an unsupported one about security or durability is refused.
    """
    options = {name: value for name, value in given.items() if value is not None}
    try:
        broker = dict(pairs) | listener_options(listeners, dict(pairs), options)
        values = read_values(config, options)
        settings, warnings = read_settings(values, broker)
        count = read_processes(values)
        work = run(settings) if count == 1 else _run_processes(settings, count, config, broker, log_level)
    except (ValueError, InvalidConfig) as error:
        raise click.UsageError(str(error)) from error
    identity = f"node={settings.node_id}" if count == 1 else f"processes={count}"
    _set_up_logging(log_level, identity)
    for warning in warnings:
        logger.warning("setting_ignored reason=%r", warning)
    try:
        uvloop.run(work)
    except PenstockError as error:
        raise click.ClickException(str(error)) from error


def _set_up_logging(level: str, identity: str) -> None:
    """Logs to standard error; `identity` is in every line."""
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format=f"%(asctime)s level=%(levelname)s {identity} logger=%(name)s event=%(message)s",
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogRateLimit(time.monotonic))


def _run_processes(
    settings: NodeSettings, count: int, config: Path | None, options: dict[str, str], log_level: str
) -> Coroutine[Any, Any, None]:
    from penstock.cli.serve.processes import check_folder, run_processes, settings_per_broker

    settings_per_broker(settings, count)  # report errors before starting anything
    check_folder(settings.data_dir)
    return run_processes(settings, count, config, options, log_level)


async def run(settings: NodeSettings) -> None:
    """Runs a broker until SIGINT, SIGTERM or a fatal error."""
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
    gc.collect()
    gc.freeze()
    Collector().start()
    if not await _start_unless_signalled(node, stop, settings.data_dir):
        click.echo("penstock is stopping")
        return
    # Objects created at start-up live as long as the process: exclude them from garbage collection.
    gc.freeze()
    if settings.credentials is not None:
        loop.add_signal_handler(signal.SIGHUP, node.reread_credentials)
    click.echo(
        f"penstock is ready: kafka {node.listeners}, http {node.http}, data {settings.data_dir}, pid {os.getpid()}"
    )
    await stop.wait()
    click.echo("penstock is stopping")
    await node.stop()
    if failures:
        raise failures[0]


async def _start_unless_signalled(node: Node, stop: asyncio.Event, data_dir: Path) -> bool:
    """Starts the node and returns True; cancels the start and returns False if a signal sets `stop` first."""
    starting, signalled = asyncio.create_task(node.start()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, signalled), return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    try:
        starting.result()
    except (StorageError, StoreUnavailable, OSError) as error:
        raise _explain_start_failure(error, data_dir) from error
    return True


def _explain_start_failure(error: Exception, data_dir: Path) -> Exception:
    """Returns a CannotStart with advice if the disk or permissions are the cause, else the error itself."""
    problem = str(error)
    if isinstance(error, OSError):
        reason = (error.strerror or problem).lower()
        problem = f"{error.filename}: {reason}" if error.filename else reason
    elif isinstance(error, StorageError) and str(data_dir) not in problem:
        problem = f"{data_dir}: {problem}"
    cause = error if isinstance(error, OSError) else error.__cause__
    if str(data_dir) in problem and shutil.disk_usage(data_dir).free < FREE_BYTES_MIN:
        advice = "the disk is full: free some space, and start the broker again"
    elif isinstance(cause, PermissionError):
        advice = f"user id {os.geteuid()} must be able to read and write everything in the data folder"
    elif isinstance(error, OSError):
        advice = "fix this, and start the broker again"
    else:
        return error
    return CannotStart(f"the broker cannot start: {problem}; {advice}")


def _raise_file_limit() -> None:
    """Raises the limit of open files of this process: every connection and every segment needs a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

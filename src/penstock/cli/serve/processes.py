"""`penstock serve --processes N`: several brokers of one cluster on one machine, and what keeps them running."""

import logging
import os
import re
import signal
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from penstock.cli.cluster.readiness import NotWhole, until_whole
from penstock.cli.dev.cluster_folder import reachable
from penstock.cli.supervisor import PENSTOCK, Child, Program, Supervisor, start_all, until_told
from penstock.coordination.stores import EMBEDDED, parse
from penstock.node import Address, NodeSettings

logger = logging.getLogger(__name__)

HOST_ID: Final = "broker.host.id"
_ADDRESSES: Final = re.compile(r"kafka (\S+), http (\S+),")
_ANYWHERE: Final = {"0.0.0.0", "::"}


def shares(settings: NodeSettings, count: int) -> list[NodeSettings]:
    """What each of so many brokers is to be: numbers and ports count up, and a folder is named after its broker.

    ValueError says what is wrong.
    """
    if settings.store == EMBEDDED:
        raise ValueError(
            f"{count} processes are {count} brokers of one cluster, and the embedded store is one broker's own; give "
            "--store zookeeper://… or etcd://… (`penstock cluster migrate-store` moves a broker's metadata there)"
        )
    parse(settings.store)
    found = [
        replace(
            settings,
            node_id=settings.node_id + number,
            data_dir=settings.data_dir / str(settings.node_id + number),
            listen=_counted(settings.listen, number),
            http=_counted(settings.http, number),
            advertise=_counted(settings.advertise, number) if settings.advertise else None,
        )
        for number in range(count)
    ]
    _check_ports(found)
    return found


def _counted(address: Address, number: int) -> Address:
    """The address so many ports further on. Any free port (0) stays that."""
    port = address.port + number if address.port else 0
    if port > 65535:
        raise ValueError(f"counting up from {address} leads past port 65535; give a lower one")
    return replace(address, port=port)


def _check_ports(found: list[NodeSettings]) -> None:
    taken: dict[int, str] = {}
    for share in found:
        for address in (share.listen, share.http):
            host = taken.get(address.port) if address.port else None
            if host is not None and (host == address.host or _ANYWHERE & {host, address.host}):
                raise ValueError(
                    f"{len(found)} processes that count up from --listen {found[0].listen} and from --http "
                    f"{found[0].http} meet at port {address.port}; give addresses that are further apart"
                )
            taken[address.port] = address.host


def check_folder(data_dir: Path) -> None:
    """ValueError if the folder is one broker's: it would start anew in a folder below, and have lost everything."""
    if (data_dir / "identity").exists():
        raise ValueError(
            f"{data_dir} is the folder of one broker, and several processes have folders of their own in it, named "
            "after their node ids; move what is in it to one of these, or give another --data-dir"
        )


def serve_command(share: NodeSettings, config: Path | None, settings: Mapping[str, str], log_level: str) -> list[str]:
    """How one broker is started. `settings`: those that were not read from the file."""
    command = [PENSTOCK, "serve", "--processes", "1", "--node-id", str(share.node_id)]
    command += ["--data-dir", str(share.data_dir), "--store", share.store]
    command += ["--listen", str(share.listen), "--http", str(share.http), "--log-level", log_level]
    if share.advertise is not None:
        command += ["--advertise", str(share.advertise)]
    if share.credentials is not None:
        command += ["--credentials", str(share.credentials)]
    if config is not None:
        command += ["--config", str(config)]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command


async def run_processes(
    settings: NodeSettings, count: int, config: Path | None, options: Mapping[str, str], log_level: str
) -> None:
    """Run all of them until told to stop. One that dies is started again; one that cannot even start ends it all."""
    # The machine is one failure domain, whatever name it has when one of them is started again.
    given = {HOST_ID: settings.settings.get(HOST_ID) or socket.gethostname()} | dict(options)
    found = shares(settings, count)
    children = [
        Child(
            Program(
                name=f"broker {share.node_id}",
                command=serve_command(share, config, given, log_level),
                # Others lead on when they leave in order, which they can without us.
                dies_by=signal.SIGTERM,
            )
        )
        for share in found
    ]
    supervisor = Supervisor(restarts=True, report=_report, on_change=lambda: None)

    async def work() -> None:
        await start_all(children)
        for child in children:
            supervisor.watch(child)
        await _until_whole(children, [share.node_id for share in found])
        click.echo(_ready(children, settings.data_dir))
        await supervisor.all_ended(children)

    try:
        await until_told(work(), children)
        click.echo("penstock is stopping")
    finally:
        await supervisor.stop(children)


def _report(line: str) -> None:
    logger.warning("supervised what=%r", line)


async def _until_whole(children: Sequence[Child], node_ids: Collection[int]) -> None:
    """Waits until the brokers know each other. They serve all the same if they do not: reports it, and goes on."""
    kafka, _ = _addresses(children)
    try:
        await until_whole([str(reachable(Address.parse(address))) for address in kafka], node_ids)
    except NotWhole as error:
        _report(str(error))


def _addresses(children: Sequence[Child]) -> tuple[list[str], list[str]]:
    """Where each broker said that it listens: for Kafka, and for HTTP."""
    found = [match for child in children if (match := _ADDRESSES.search(child.ready_line))]
    return [match[1] for match in found], [match[2] for match in found]


def _ready(children: Sequence[Child], data_dir: Path) -> str:
    kafka, http = (",".join(addresses) for addresses in _addresses(children))
    return f"penstock is ready: kafka {kafka}, http {http}, data {data_dir}, pid {os.getpid()}"

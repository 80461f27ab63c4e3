"""`penstock serve --processes N`: runs several brokers of one cluster on one machine and restarts them."""

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

from penstock.cli.cluster.readiness import BrokersNotConnected, wait_until_connected
from penstock.cli.dev.cluster_folder import connect_address
from penstock.cli.supervisor import PENSTOCK, Child, Program, Supervisor, run_until_signal, start_all
from penstock.client.security import PLAINTEXT, SecuritySettings
from penstock.cluster.listeners import Listeners
from penstock.cluster.settings import ADVERTISED_LISTENERS, LISTENERS
from penstock.coordination.stores import EMBEDDED, parse
from penstock.foundation.security_protocol import SecurityProtocol
from penstock.node import Address, NodeSettings

logger = logging.getLogger(__name__)

HOST_ID: Final = "broker.host.id"
_ADDRESSES: Final = re.compile(r"kafka (\S+), http (\S+),")
_ANYWHERE: Final = {"0.0.0.0", "::"}


def settings_per_broker(settings: NodeSettings, count: int) -> list[NodeSettings]:
    """Returns the settings of `count` brokers: node ids and ports count up, and data folders are named after node
    ids. Raises ValueError for the embedded store, or if ports collide."""
    if settings.store == EMBEDDED:
        raise ValueError(
            f"{count} processes form a cluster of {count} brokers, which cannot share an embedded store; give "
            "--store zookeeper://… or etcd://… (`penstock cluster migrate-store` moves a broker's metadata there)"
        )
    parse(settings.store)
    found = [
        replace(
            settings,
            node_id=settings.node_id + number,
            data_dir=settings.data_dir / str(settings.node_id + number),
            listen=_shift_port(settings.listen, number),
            http=_shift_port(settings.http, number),
            advertise=_shift_port(settings.advertise, number) if settings.advertise else None,
            listeners=_shift_ports(settings.listeners, number) if settings.listeners else None,
        )
        for number in range(count)
    ]
    _check_ports(found)
    return found


def _shift_port(address: Address, number: int) -> Address:
    """Returns the address with `number` added to its port; port 0 (any free port) stays 0."""
    port = address.port + number if address.port else 0
    if port > 65535:
        raise ValueError(f"counting up from {address} exceeds port 65535; give a lower port")
    return replace(address, port=port)


def _shift_ports(listeners: Listeners, number: int) -> Listeners:
    return replace(
        listeners,
        all=tuple(
            replace(
                each,
                bind=_shift_port(each.bind, number),
                advertised=_shift_port(each.advertised, number) if each.advertised else None,
            )
            for each in listeners
        ),
    )


def _check_ports(found: list[NodeSettings]) -> None:
    taken: dict[int, str] = {}
    for broker in found:
        for address in (*(each.bind for each in broker.kafka), broker.http):
            host = taken.get(address.port) if address.port else None
            if host is not None and (host == address.host or _ANYWHERE & {host, address.host}):
                raise ValueError(
                    f"the ports of {len(found)} processes, counted up from --listen {found[0].kafka} and --http "
                    f"{found[0].http}, collide at port {address.port}; give ports that are further apart"
                )
            taken[address.port] = address.host


def check_folder(data_dir: Path) -> None:
    """Raises ValueError if a single-process broker wrote this data folder: several processes use another layout."""
    if (data_dir / "identity").exists():
        raise ValueError(
            f"{data_dir} is the data folder of a single broker; with --processes each broker has a subfolder named "
            "after its node id; move the data into one of those, or give another --data-dir"
        )


def serve_command(node: NodeSettings, config: Path | None, settings: Mapping[str, str], log_level: str) -> list[str]:
    """Returns the command line that starts one broker. `settings` are passed with --set and override `config`."""
    command = [PENSTOCK, "serve", "--processes", "1", "--node-id", str(node.node_id)]
    command += ["--data-dir", str(node.data_dir), "--store", node.store]
    command += ["--http", str(node.http), "--log-level", log_level]
    settings = {name: value for name, value in settings.items() if name not in (LISTENERS, ADVERTISED_LISTENERS)}
    if node.listeners is not None:
        settings |= {LISTENERS: node.kafka.bind_text, ADVERTISED_LISTENERS: node.kafka.advertised_text}
    else:
        command += ["--listen", str(node.listen)]
        if node.advertise is not None:
            command += ["--advertise", str(node.advertise)]
    if node.store_config is not None:
        command += ["--store-config", str(node.store_config)]
    if node.credentials is not None:
        command += ["--credentials", str(node.credentials)]
    if config is not None:
        command += ["--config", str(config)]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return command


async def run_processes(
    settings: NodeSettings, count: int, config: Path | None, options: Mapping[str, str], log_level: str
) -> None:
    """Runs `count` brokers until a signal arrives; restarts a broker that exits. Raises ChildFailed if the first
    start of a broker fails."""
    # All brokers of this machine are one failure domain, even if its host name changes before a restart.
    given = {HOST_ID: settings.settings.get(HOST_ID) or socket.gethostname()} | dict(options)
    found = settings_per_broker(settings, count)
    children = [
        Child(
            Program(
                name=f"broker {broker.node_id}",
                command=serve_command(broker, config, given, log_level),
                # If we die, they still leave the cluster in order, and other brokers take over their partitions.
                parent_death_signal=signal.SIGTERM,
            )
        )
        for broker in found
    ]
    supervisor = Supervisor(restarts=True, report=_report, on_change=lambda: None)

    async def work() -> None:
        await start_all(children)
        for child in children:
            supervisor.watch(child)
        await _wait_until_connected(children, settings.kafka, settings.named, [broker.node_id for broker in found])
        click.echo(_ready(children, settings.data_dir))
        await supervisor.all_ended(children)

    try:
        await run_until_signal(work(), children)
        click.echo("penstock is stopping")
    finally:
        await supervisor.stop(children)


def _report(line: str) -> None:
    logger.warning("supervisor report=%r", line)


async def _wait_until_connected(
    children: Sequence[Child], listeners: Listeners, settings: Mapping[str, str], node_ids: Collection[int]
) -> None:
    """Waits until the brokers have learned of each other; after a timeout, logs a warning and returns. Without a
    plaintext listener, it connects as the brokers do."""
    kafka, _ = _addresses(children)
    names = [each.name for each in listeners]
    used = next((each for each in listeners if each.protocol is SecurityProtocol.PLAINTEXT), None)
    security, host = PLAINTEXT, ""
    if used is None:
        used = listeners[listeners.inter_broker]
        security = SecuritySettings.between_brokers(settings, used.name, used.protocol)
        host = listeners.peer_address.host
    bound = [Address.parse(text.split(",")[names.index(used.name)].rpartition("://")[2]) for text in kafka]
    reached = [Address(host=host, port=each.port) if host else connect_address(each) for each in bound]
    try:
        await wait_until_connected([str(each) for each in reached], node_ids, security)
    except BrokersNotConnected as error:
        _report(str(error))


def _addresses(children: Sequence[Child]) -> tuple[list[str], list[str]]:
    """Returns the Kafka and HTTP addresses in the lines that the brokers print once they are ready."""
    found = [match for child in children if (match := _ADDRESSES.search(child.ready_line))]
    return [match[1] for match in found], [match[2] for match in found]


def _ready(children: Sequence[Child], data_dir: Path) -> str:
    kafka, http = (",".join(addresses) for addresses in _addresses(children))
    return f"penstock is ready: kafka {kafka}, http {http}, data {data_dir}, pid {os.getpid()}"

"""The cluster that `penstock dev` runs from a folder: saved options, free ports, broker and store processes."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock.cli.supervisor import PENSTOCK, Child, Program
from penstock.coordination import local_servers
from penstock.coordination.local_servers import LocalServer
from penstock.foundation.errors import PenstockError
from penstock.foundation.private_folder import private_folder
from penstock.node import Address

BROKERS_DEFAULT: Final = 3
REPLICAS_MAX: Final = 3
"""Default replication factor; with fewer brokers, the default is the number of brokers."""
_PORTS_TRIED: Final = 1000


class ClusterMismatch(PenstockError):
    """The cluster in the folder cannot be run with the requested options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Store type, broker count and replication factor of a cluster; saved in its folder's dev.json for later runs."""

    coordination: str
    brokers: int
    replication_factor: int | None = None
    """The replication factor that the user requested; None if the default applies."""

    @classmethod
    def of(cls, folder: Path, coordination: str | None, brokers: int | None, factor: int | None) -> "Plan":
        """Returns the requested options (None: not given), completed by the options saved in the folder. Raises
        ClusterMismatch if they conflict, and ServerMissing if the required etcd or ZooKeeper is not installed."""
        saved = _read_plan(folder / "dev.json")
        if saved is None:
            saved = cls(coordination=local_servers.choose(coordination), brokers=brokers or BROKERS_DEFAULT)
        if coordination not in (None, saved.coordination):
            raise ClusterMismatch(
                f"the cluster in {folder} uses {saved.coordination}, not {coordination}; "
                "omit --coordination, or give another --data-dir"
            )
        if brokers is not None and brokers < saved.brokers:
            raise ClusterMismatch(
                f"the cluster in {folder} has {saved.brokers} brokers, requested {brokers}: it can grow but not "
                f"shrink, because replicas would be missing; give --brokers {saved.brokers}, or another --data-dir"
            )
        local_servers.choose(saved.coordination)
        plan = cls(
            coordination=saved.coordination,
            brokers=brokers or saved.brokers,
            replication_factor=factor or saved.replication_factor,
        )
        if plan.replicas > plan.brokers:
            raise ClusterMismatch(f"--replication-factor {plan.replicas} exceeds the {plan.brokers} brokers")
        return plan

    @property
    def replicas(self) -> int:
        return self.replication_factor or min(REPLICAS_MAX, self.brokers)

    @property
    def settings(self) -> dict[str, str]:
        """Broker settings for the replication factor. min.insync.replicas is 2 for three or more replicas, else 1."""
        replicas = str(self.replicas)
        return {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "min.insync.replicas": "2" if self.replicas >= REPLICAS_MAX else "1",
        }

    def save(self, folder: Path) -> None:
        values = {
            "coordination": self.coordination,
            "brokers": self.brokers,
            "replication_factor": self.replication_factor,
        }
        write_json(folder / "dev.json", values)


def _read_plan(file: Path) -> Plan | None:
    try:
        return Plan(**json.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ClusterMismatch(f"{file} is damaged: {error}; restore it, or give another --data-dir") from error


def write_json(file: Path, value: Any) -> None:
    """Writes the value as JSON and replaces the file atomically: readers see the old or the new content."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(value) + "\n")
    os.replace(fresh, file)


class FreePorts:
    """Allocates free ports, each only once, even if several clusters start at the same moment: this process locks
    a file for each port, and holds the locks until it ends."""

    def __init__(self) -> None:
        self._allocated: set[int] = set()
        self._folder = private_folder("ports")

    def free(self, wanted: Address) -> Address:
        """Returns `wanted` with the first free port from its own port upwards; port 0 means any port. Raises
        ClusterMismatch if no port is free."""
        ports = range(wanted.port, min(wanted.port + _PORTS_TRIED, 65536)) if wanted.port else [0] * _PORTS_TRIED
        for port in ports:
            found = self._try(wanted.host, port)
            if found is not None and found not in self._allocated and self._reserve(found):
                self._allocated.add(found)
                return Address(host=wanted.host, port=found)
        raise ClusterMismatch(f"no free port from {wanted} on; give another address")

    @staticmethod
    def _try(host: str, port: int) -> int | None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
        return None

    def _reserve(self, port: int) -> bool:
        """Locks the file of this port; returns False if another process holds the lock. Never deletes the file."""
        fd = os.open(self._folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        return True


def connect_address(address: Address) -> Address:
    """Returns the address that clients connect to: with host 127.0.0.1 if the broker listens on all interfaces."""
    return replace(address, host="127.0.0.1") if address.host in ("0.0.0.0", "::") else address


@dataclass(frozen=True, slots=True, kw_only=True)
class DevBroker:
    node_id: int
    listen: Address
    http: Address
    child: Child


class DevCluster:
    """The processes of a development cluster; the constructor does not start them."""

    def __init__(
        self, folder: Path, plan: Plan, listen: Address, http: Address, settings: Mapping[str, str], log_level: str
    ) -> None:
        """`listen`, `http`: addresses of the first broker. `settings`: override the settings of the plan."""
        self.folder = folder
        self._plan = plan
        ports, logs = FreePorts(), folder / "logs"
        logs.mkdir(exist_ok=True)
        # Brokers first: they get the requested ports.
        addresses = [(ports.free(listen), ports.free(http)) for _ in range(plan.brokers)]
        self.server = self._make_server(ports)
        kind = plan.coordination
        self.store = Child(
            Program(name=kind, command=self.server.command, log=logs / f"{kind}.log", is_ready=self.server.is_ready)
        )
        self.brokers = [
            self._make_broker(node_id, *pair, plan.settings | dict(settings), log_level)
            for node_id, pair in enumerate(addresses, start=1)
        ]

    def _make_server(self, ports: FreePorts) -> LocalServer:
        kind = self._plan.coordination
        folder = self.folder / kind
        folder.mkdir(exist_ok=True)
        first = Address(host=local_servers.HOST, port=local_servers.PORTS[kind])
        port = ports.free(first).port
        if kind == local_servers.ETCD:
            return local_servers.etcd_server(folder, port, ports.free(first).port)
        return local_servers.zookeeper_server(folder, port)

    def _make_broker(
        self, node_id: int, listen: Address, http: Address, settings: Mapping[str, str], log_level: str
    ) -> DevBroker:
        command = [PENSTOCK, "serve", "--node-id", str(node_id), "--store", self.server.url]
        command += ["--data-dir", str(self.folder / f"broker-{node_id}"), "--log-level", log_level]
        command += ["--listen", str(listen), "--http", str(http)]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        log = self.folder / "logs" / f"broker-{node_id}.log"
        child = Child(Program(name=f"broker {node_id}", command=command, log=log))
        return DevBroker(node_id=node_id, listen=listen, http=http, child=child)

    @property
    def children(self) -> list[Child]:
        return [self.store, *(broker.child for broker in self.brokers)]

    @property
    def bootstrap(self) -> str:
        return ",".join(str(connect_address(broker.listen)) for broker in self.brokers)

    def summary(self) -> dict[str, Any]:
        """Returns the content of cluster.json: the running brokers and the store."""
        return {
            "bootstrap": self.bootstrap,
            "brokers": [
                {
                    "node_id": broker.node_id,
                    "pid": broker.child.pid,
                    "listen": str(broker.listen),
                    "http": str(broker.http),
                }
                for broker in self.brokers
                if broker.child.pid is not None
            ],
            "coordination": {"kind": self.server.kind, "url": self.server.url, "pid": self.store.pid},
        }

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yields one table row per process: name, pid, addresses and log file."""
        yield self.server.kind, self.store.pid, self.server.address, None, self.store.program.log
        for broker in self.brokers:
            yield broker.child.name, broker.child.pid, broker.listen, broker.http, broker.child.program.log

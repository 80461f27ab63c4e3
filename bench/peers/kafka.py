"""Apache Kafka from Maven Central: one node, KRaft, its own defaults, the heap that its scripts give it."""

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.broker import KafkaBroker
from bench.cache import NotRun
from bench.peers.maven import jars_of
from bench.process import Process, free_port

VERSION: Final = "4.3.1"
JVM: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""KAFKA_HEAP_OPTS of kafka-server-start.sh and KAFKA_JVM_PERFORMANCE_OPTS of kafka-run-class.sh."""
FORMAT_S_MAX: Final = 120

PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{tls_listener}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{tls_listener}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
{group_settings}
{tls_settings}
group.consumer.assignment.interval.ms=0
"""
"""Where it listens, who its peers are, and that groups wait for nothing (see below); all else is Kafka's default.

The last line is of Kafka 4.3 (KIP-1263): it would share out once a second only, Penstock does so at once.
"""
GROUP_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({"group.initial.rebalance.delay.ms": "0"})
"""As in the server.properties that Kafka comes with. Penstock gets them too where groups are measured."""

TLS_SETTINGS: Final = "ssl.keystore.type=PEM\nssl.keystore.location={keystore}"


class ApacheKafka(KafkaBroker):
    name = "Kafka"
    # Not a matter of speed: what a run wrote shall be gone before the next one begins.
    topic_configs: Mapping[str, str] = MappingProxyType({"file.delete.delay.ms": "0"})

    def __init__(
        self,
        folder: Path,
        node_id: int = 1,
        controllers: Mapping[int, int] = MappingProxyType({}),
        keystore: Path | None = None,
    ) -> None:
        """`controllers`: the ports of the controllers of all nodes, if it is not alone. `keystore`: a PEM file with a
        key and a certificate, for a second listener with TLS."""
        super().__init__(folder)
        self._node_id = node_id
        self._controllers = controllers
        self._keystore = keystore
        self.tls_port: Final = free_port()

    def start(self) -> None:
        self.spawn(new_cluster_id())
        self.ready_s = self.process.wait_for_answer()

    def spawn(self, cluster_id: str) -> None:
        """Begin to start it: nodes of one cluster wait for each other."""
        jars = jars_of("kafka", "org.apache.kafka", "kafka_2.13", VERSION)
        self.folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        controllers = self._controllers or {self._node_id: free_port()}
        properties = self.folder / "server.properties"
        data = self.folder / "data"
        properties.write_text(
            PROPERTIES.format(
                port=port,
                node_id=self._node_id,
                voters=",".join(f"{node}@127.0.0.1:{at}" for node, at in controllers.items()),
                controller_port=controllers[self._node_id],
                data=data,
                tls_listener="" if self._keystore is None else f",SSL://127.0.0.1:{self.tls_port}",
                tls_settings="" if self._keystore is None else TLS_SETTINGS.format(keystore=self._keystore),
                group_settings="\n".join(f"{name}={value}" for name, value in GROUP_SETTINGS.items()),
            )
        )
        classpath = f"{jars}/*"
        if not data.exists():
            _format(classpath, properties, cluster_id)
        command: list[str | Path] = ["java", *JVM, "-cp", classpath, "kafka.Kafka", properties]
        self._process = Process(command, self.folder / "stderr", port)


def new_cluster_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _format(classpath: str, properties: Path, cluster_id: str) -> None:
    command = ["java", "-cp", classpath, "kafka.tools.StorageTool", "format"]
    command += [f"--cluster-id={cluster_id}", "-c", str(properties)]  # it may begin with a hyphen
    done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_S_MAX, check=False)
    if done.returncode:
        raise NotRun(f"Kafka's storage cannot be formatted: {(done.stderr or done.stdout)[-300:]}")

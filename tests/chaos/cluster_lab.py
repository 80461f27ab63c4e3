"""A cluster in network namespaces: three brokers, three store servers, and a machine for clients.

The thread that uses a Lab is on the clients' machine. When it ends nothing of it is left, but for its folder
if the test has failed.
"""

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from tests.clients.waiting import wait_until

from . import cluster_clock, cluster_net, cluster_store
from .cluster_broker import HTTP_PORT, ClusterBroker
from .cluster_clock import ShiftedClock
from .cluster_net import CannotDo, Network
from .cluster_store import StoreServers

SESSION_S = 5.0
PATIENCE_S = 120.0
SMALL_DISK_BYTES = 512 << 20
CLIENTS, OTHERS = "clients", "others"
"""The machine of clients; the machine of processes that should be refused."""
SETTINGS: Mapping[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 4000,
    "replica.socket.timeout.ms": 4000,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    "leader.imbalance.check.interval.seconds": 20,
    "group.initial.rebalance.delay.ms": 0,
    "log.initial.task.delay.ms": 86_400_000,
    "log.retention.check.interval.ms": 86_400_000,
    "auto.create.topics.enable": "false",
}
_numbers = itertools.count()


class Lab:
    """The cluster; see `lab` for how to have one."""

    def __init__(
        self, kind: str, folder: Path, *, session_s: float, brokers: int, settings: Mapping[str, object]
    ) -> None:
        self.kind = kind
        self.folder = folder
        self.session_s = session_s
        self._count = brokers
        self._settings = settings
        self.network = Network(f"pk{os.getpid()}{chr(97 + next(_numbers) % 26)}")
        self.brokers: dict[int, ClusterBroker] = {}
        self.others: list[ClusterBroker] = []
        """Processes that are no part of the cluster, and should not become one."""
        self.clocks: dict[int, ShiftedClock] = {}
        self.small_disk: Path | None = None
        """The data folder of the last broker, if a disk of its own could be had for it."""

    def make(self) -> None:
        """The machines, and what runs on them. Nothing is started."""
        self.network.open()
        self.network.add(CLIENTS)
        self.stores: StoreServers = cluster_store.KINDS[self.kind](self.network, self.folder)
        self._library = cluster_clock.build(self.folder)
        for node in range(1, self._count + 1):
            small = node == self._count and self._mount_small_disk()
            self.add_broker(node, data_dir=self.small_disk if small else None)

    def _mount_small_disk(self) -> bool:
        disk = self.folder / "small-disk"
        disk.mkdir()
        try:
            cluster_net.run("mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(disk))
        except CannotDo:
            return False
        self.small_disk = disk
        return True

    def add_broker(self, node: int, data_dir: Path | None = None) -> ClusterBroker:
        """One more broker of the cluster, on a machine of its own. It is not started."""
        name = f"b{node}"
        self.network.add(name)
        environment = {}
        if self._library is not None:
            self.clocks[node] = clock = ShiftedClock(self._library, self.folder / f"{name}.clock")
            environment = clock.environment
        broker = self.brokers[node] = self._process(name, name, node, data_dir, environment=environment)
        return broker

    def add_other(self, name: str, node: int, data_dir: Path, store: str | None = None) -> ClusterBroker:
        """A process that is no part of the cluster, on the machine for such. It is not started."""
        if OTHERS not in self.network.addresses:
            self.network.add(OTHERS)
        other = self._process(f"{name}-{len(self.others)}", OTHERS, node, data_dir, store=store)
        self.others.append(other)
        return other

    def _process(
        self,
        name: str,
        machine: str,
        node: int,
        data_dir: Path | None,
        *,
        store: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ClusterBroker:
        folder = self.folder / name
        folder.mkdir()
        return ClusterBroker(
            self.network,
            name=machine,
            node_id=node,
            folder=folder,
            store=store or self.stores.url,
            session_s=self.session_s,
            data_dir=data_dir,
            settings={**SETTINGS, "broker.host.id": name, **self._settings},
            environment=environment,
        )

    def start(self) -> None:
        self.stores.start()
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            broker.wait_ready()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.kafka for broker in self.brokers.values())

    def tend(self) -> None:
        for broker in self.brokers.values():
            broker.tend()

    # -- what the brokers say

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 10_000})

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None, replicas: int = 3) -> None:
        wanted = NewTopic(topic, partitions, replicas, config=dict(config or {}))
        admin = self.admin()  # which must outlive what it is asked for
        admin.create_topics([wanted], operation_timeout=30)[topic].result(PATIENCE_S)

    def partitions(self, admin: AdminClient, timeout_s: float = 5) -> dict[str, PartitionMetadata]:
        """Every partition as the cluster shows it; none if it does not answer now."""
        try:
            topics = admin.list_topics(timeout=timeout_s).topics
        except KafkaException:
            return {}
        return {f"{name}-{at}": state for name, topic in topics.items() for at, state in topic.partitions.items()}

    def ailing(self, admin: AdminClient) -> list[str] | None:
        """What is not led, or not in sync everywhere; None if no broker answers."""
        found = self.partitions(admin)
        if not found:
            return None
        return [
            f"{name} leader={state.leader} isr={sorted(state.isrs)} replicas={sorted(state.replicas)}"
            for name, state in found.items()
            if state.leader < 0 or set(state.isrs) != set(state.replicas)
        ]

    def wait_whole(self, timeout_s: float = PATIENCE_S) -> None:
        """Everything is led, and in sync everywhere."""
        admin = self.admin()
        last: list[list[str] | None] = [None]

        def look() -> bool:
            self.tend()
            last[0] = self.ailing(admin)
            return last[0] == []

        wait_until(look, "all partitions are in sync", timeout_s, 0.25, seen=last)

    def controller(self) -> int | None:
        """The broker that decides, if the cluster says who does."""
        admin = self.admin()
        try:
            found = admin.describe_cluster(request_timeout=5).result(10)
        except KafkaException:
            return None
        return found.controller.id if found.controller is not None else None

    def offline(self) -> int:
        """Replicas that brokers say they cannot serve."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        found = 0.0
        for broker in self.brokers.values():
            with opener.open(f"http://{broker.address}:{HTTP_PORT}/metrics", timeout=30) as answer:
                lines = answer.read().decode().splitlines()
            found += sum(float(line.split()[-1]) for line in lines if line.startswith("penstock_offline_partitions"))
        return int(found)

    # -- what lies on disks

    def check_replicas(self) -> int:
        """Brokers must be stopped. All replicas have the same bytes; how many bytes that is."""
        digests: dict[str, dict[int, tuple[int, str]]] = {}
        for node, broker in self.brokers.items():
            tool = str(Path(sys.executable).with_name("penstock"))
            done = subprocess.run([tool, "log", "inspect", str(broker.data_dir)], capture_output=True, text=True)
            assert done.returncode == 0, f"{broker.name}: {done.stdout[-3000:]}{done.stderr[-1000:]}"
            for path in sorted((broker.data_dir / "logs").glob("*/*")):
                if path.is_dir():
                    name = f"{path.parent.name}/{path.name}"
                    digests.setdefault(name, {})[node] = _digest(path)
        for name, found in digests.items():
            assert len(set(found.values())) == 1, f"replicas of {name} differ (bytes, digest): {found}"
            assert len(found) == min(3, len(self.brokers)), f"{name} is only on {sorted(found)}"
        return sum(next(iter(found.values()))[0] for found in digests.values())

    # -- the end

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def check_logs(self) -> None:
        """Checks that no broker has logged an unexpected error."""
        for broker in self.brokers.values():
            log = broker.log
            at = log.find("Traceback")
            assert at < 0, f"{broker.name}:\n{log[max(0, at - 500) : at + 3000]}"

    def close(self) -> None:
        for broker in (*self.brokers.values(), *self.others):
            broker.clear()
        if hasattr(self, "stores"):
            self.stores.stop()
        for clock in self.clocks.values():
            clock.close()
        self.network.close()


def noting(file: Path) -> Callable[[str], None]:
    """Writes lines with their times: those of the logs, and since the beginning."""
    began_s = time.monotonic()

    def note(line: str) -> None:
        with file.open("a") as notes:
            notes.write(f"{time.strftime('%H:%M:%S')} {time.monotonic() - began_s:8.2f} {line}\n")

    return note


def _digest(folder: Path) -> tuple[int, str]:
    """Of all segments of a log, one after another: where they are cut may differ."""
    digest, size = hashlib.sha256(), 0
    for segment in sorted(folder.glob("*.log")):
        data = segment.read_bytes()
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()


@contextmanager
def lab(
    kind: str, *, session_s: float = SESSION_S, brokers: int = 3, settings: Mapping[str, object] | None = None
) -> Iterator[Lab]:
    """A cluster that runs. Skips the test where it cannot be had; keeps its folder if the test fails."""
    reason = cluster_store.why_not(kind) or cluster_net.why_not()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix=f"pk-chaos-{kind}-"))
    try:
        with ExitStack() as stack:
            found = Lab(kind, folder, session_s=session_s, brokers=brokers, settings=settings or {})
            stack.callback(_unmount, found)
            stack.callback(found.close)
            found.make()
            stack.enter_context(found.network.inside(CLIENTS))
            found.start()
            yield found
    except BaseException:
        print(f"histories and logs are kept in {folder}")  # noqa: T201
        raise
    shutil.rmtree(folder)


def _unmount(found: Lab) -> None:
    """What lay on the small disk is kept with the rest."""
    disk = found.small_disk
    if disk is not None:
        shutil.copytree(disk, found.folder / "small-disk-data", ignore=shutil.ignore_patterns("ballast"))
        subprocess.run(["umount", "--lazy", str(disk)], check=False)

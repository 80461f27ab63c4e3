"""Three brokers of each kind, with three replicas of everything."""

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.blocking_client import BlockingClient
from bench.broker import KafkaBroker, topic_name
from bench.frames import Shape
from bench.measure import cpu_s
from bench.peers.etcd import Etcd
from bench.peers.kafka import ApacheKafka, new_cluster_id
from bench.penstock import Penstock
from bench.process import free_port

NODES: Final = (1, 2, 3)
CONFIGS: Final = {"min.insync.replicas": "2"}


class Cluster:
    """The first broker leads what is made here: the load goes to it, the others follow. A bench.broker.Broker."""

    def __init__(self, name: str, members: Sequence[KafkaBroker], stop: Callable[[], None]) -> None:
        self.name = name
        self.members = members
        self.stop = stop

    @property
    def pid(self) -> int:
        return self.members[0].pid

    @property
    def port(self) -> int:
        return self.members[0].port

    def make_topic(self, shape: Shape, partitions: int) -> str:
        name = topic_name()
        others = itertools.cycle([(2, 3), (3, 2)])
        replicas = [(1, *next(others)) for _ in range(partitions)]
        with BlockingClient(self.port) as client:
            client.create_topic(name, partitions, CONFIGS | dict(self.members[0].topic_configs), replicas)
        return name

    def make_spread_topic(self, partitions: int) -> str:
        """Led by all of them."""
        name = topic_name()
        with BlockingClient(self.port) as client:
            client.create_topic(
                name, partitions, CONFIGS | dict(self.members[0].topic_configs), factor=len(self.members)
            )
        return name

    def drop_topic(self, topic: str) -> None:
        self.members[0].drop_topic(topic)

    def records_in(self, topic: str, partitions: int) -> int:
        return self.members[0].records_in(topic, partitions)

    def follower_cpu_s(self) -> float:
        return sum(cpu_s(member.pid) for member in self.members[1:])

    def all_cpu_s(self) -> float:
        return sum(cpu_s(member.pid) for member in self.members)


def start_penstock(folder: Path) -> Cluster:
    with ExitStack() as undo:
        store = Etcd(folder)
        undo.callback(store.stop)
        url = store.start()
        members = []
        for node in NODES:
            member = Penstock(folder / str(node), {"default.replication.factor": "3"}, node, url)
            undo.callback(member.stop)
            member.start()
            members.append(member)
        return Cluster("Penstock", members, undo.pop_all().close)


def start_kafka(folder: Path) -> Cluster:
    with ExitStack() as undo:
        controllers = {node: free_port() for node in NODES}
        members = [ApacheKafka(folder / str(node), node, controllers) for node in NODES]
        cluster_id = new_cluster_id()
        for member in members:
            undo.callback(member.stop)
            member.spawn(cluster_id)
        for member in members:
            member.process.wait_for_answer()
        return Cluster("Kafka", members, undo.pop_all().close)

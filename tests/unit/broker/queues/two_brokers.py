"""Two brokers that share a store: real logs and services, and a network of function calls."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, cast

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.configs import Configs
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.peers import Answer
from penstock.broker.queues.assembly import add_queues
from penstock.broker.registry import APIS, load_handlers
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.client.errors import ConnectionFailed, ConnectionLost
from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.cluster.queues import Queue, QueueSettings
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.store import Put
from penstock.foundation.ids import TopicIdPartition
from penstock.log.disk import OsDisk
from penstock.replication.partitions import Partitions
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.keys import ApiKey
from penstock.wire.schema import RESPONSES, message_of
from tests.simulation.clock import FakeClock
from tests.unit.replication.broker_state import settings_of

from .queue_harness import QueueHarness, turn

NODES: Final = (1, 2)

load_handlers()


class ClusterBroker(QueueHarness):
    """One of the brokers."""

    def __init__(self, cluster: "TwoBrokers", node_id: int, folder: Path) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.partitions = Partitions(
            node_id=node_id, disk=OsDisk(folder), clock=cluster.clock, boot_id="boot", settings_of=settings_of
        )
        super().__init__(cast(Any, cluster))

    def make_service(self) -> Any:
        image = lambda: self.cluster.metadata.image  # noqa: E731
        self.broker = Broker(
            node_id=self.node_id,
            metadata=self.cluster.metadata,
            partitions=self.partitions,
            configs=Configs(static={}, node_id=self.node_id, image=image),
            sessions=FetchSessions(0),
            producer_ids=ProducerIds(self.cluster.metadata),
            clock=self.cluster.clock,
            timer=self._timer,
            log_dir="",
            disk_space=lambda: (0, 0),
            threads=self.cluster.threads,
            groups=cast(Any, None),
            transactions=cast(Any, None),
            ask=self._ask,
        )
        return add_queues(self.broker)

    def apply(self, image: ClusterImage) -> None:
        self.partitions.apply(image)
        self.service.apply(image)

    def _ask(self, node: int, request: Any, answer: Answer) -> None:
        self.cluster.carry(self.node_id, node, request, answer)


class TwoBrokers:
    """What the brokers share."""

    def __init__(self, metadata: Metadata, folder: Path) -> None:
        self.metadata = metadata
        self.clock = FakeClock()
        self.threads = ThreadPoolExecutor(2)
        self.asked: list[tuple[int, ApiKey]] = []
        """The requests that brokers have got."""
        self.hold: Callable[[Any], bool] = lambda message: False
        """Requests and responses that are lost."""
        self.brokers = {node: ClusterBroker(self, node, folder / str(node)) for node in NODES}
        for broker in self.brokers.values():
            metadata.listeners.append(broker.apply)
            broker.apply(metadata.image)

    def carry(self, source: int, node: int, request: Any, answer: Answer) -> None:
        """A request to a broker, in its bytes, and its answer back."""
        loop = asyncio.get_running_loop()
        if node not in self.brokers:
            loop.call_soon(answer, ConnectionFailed(f"broker {node} is not there"))
            return
        if self.hold(request):
            loop.call_soon(answer, ConnectionLost("the request was lost"))
            return
        loop.call_soon(self._arrive, node, request, answer)

    def _arrive(self, node: int, request: Any, answer: Answer) -> None:
        key = message_of(type(request)).key
        self.asked.append((node, key))
        api = APIS[key]
        version = api.versions[-1]

        def on_answer(call: Call) -> None:
            cls = RESPONSES[key]
            at = 9 if version >= message_of(cls).flexible_from else 8
            response = decode(cls, version, b"".join(call.parts or ()), at)
            lost = ConnectionLost("the answer was lost")
            asyncio.get_running_loop().call_soon(answer, lost if self.hold(response) else response)

        call = Call(key, version, 7, "broker", 0.0, 0, "10.0.0.1:5", on_answer)
        decoded = decode(api.request, version, bytearray(encode_bytes(request, version)))
        result = api.handler(decoded, call, self.brokers[node].broker)
        assert not isawaitable(result)
        if result is not None:
            call.answer(result)

    async def create(self, name: str = "jobs", **settings: Any) -> Queue:
        """A queue; as long as nothing else is said, with a partition at each broker."""
        first = self.brokers[1]
        queue = await first.service.create(name, QueueSettings(**{"partitions": 2, **settings}), {}, "me")
        for broker in self.brokers.values():
            await broker.ready()
        topic = self.metadata.image.topics[queue.topic_id]
        for number in topic.partitions:
            await self.move(queue, number, 1 + number % len(NODES))
        return queue

    async def move(self, queue: Queue, number: int, node: int) -> None:
        """Have a partition led by a broker; what another has of it is lost."""
        state = self.metadata.image.topics[queue.topic_id].partitions[number]
        if state.leader != node:
            moved = replace(state, replicas=(node,), isr=(node,), leader=node, leader_epoch=state.leader_epoch + 1)
            put = Put(keys.partition(queue.topic_id, number), moved.dump(), state.version)
            await self.metadata.change(
                lambda image: [put] if image.state(TopicIdPartition(queue.topic_id, number)) == state else []
            )
        await turn()
        for broker in self.brokers.values():
            await broker.ready()
        await turn()


def _register(image: ClusterImage) -> list[Put]:
    return [
        Put(keys.broker(node), keys.encode({"host": f"h{node}", "port": 1}), image.version(keys.broker(node)))
        for node in NODES
    ]


@asynccontextmanager
async def two_brokers_at(folder: Path) -> AsyncIterator[TwoBrokers]:
    for node in NODES:
        (folder / str(node)).mkdir(exist_ok=True)
    store = EmbeddedStore(folder / "metadata.db")
    await store.open()
    metadata = Metadata(store)
    await metadata.start()
    await metadata.change(_register)
    cluster = TwoBrokers(metadata, folder)
    try:
        yield cluster
    finally:
        metadata.listeners.clear()
        for broker in cluster.brokers.values():
            await broker.service.close()
            broker.partitions.close()
        await store.close()
        cluster.threads.shutdown()

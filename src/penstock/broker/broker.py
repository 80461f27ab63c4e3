"""What the handlers share: the image, the partitions, the settings, the clock."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.configs import Configs
from penstock.broker.delays.partitions import DelayPartitions
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.peers import AskPeer
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.service import QueueService
from penstock.broker.share.delivery_terms import TermsTable
from penstock.broker.share.sessions import ShareSessions
from penstock.broker.transactions.produce_order import Turns
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.broker.views.service import ViewService
from penstock.cluster.image import NO_LEADER, ClusterImage, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.topic_changes import Defaults
from penstock.cluster.views import NotAllowedOnView
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import NotLeaderOrFollower, UnknownTopicId, UnknownTopicOrPartition
from penstock.foundation.ids import uuid_text
from penstock.foundation.sliced_calls import SlicedCalls
from penstock.foundation.time_slices import TimeSlices
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtimes import StateRuntimes
from penstock.replication.throttle import Throttle
from penstock.wire.schema import NIL_UUID

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Broker:
    node_id: int
    metadata: Metadata
    partitions: Partitions
    configs: Configs
    sessions: FetchSessions
    producer_ids: ProducerIds
    clock: Clock
    timer: Timer
    log_dir: str
    disk_space: Callable[[], tuple[int, int]]
    """Bytes in all, and bytes that are free, where the logs lie."""
    threads: Executor
    """For work that waits or computes: cold reads, batches that must be opened."""
    groups: StateRuntimes
    transactions: StateRuntimes
    throttle: Throttle = field(default_factory=Throttle)
    """Of what followers get that lag."""
    ask: AskPeer
    """Asks another broker."""
    turns: Turns = field(default_factory=Turns)
    """Of transactions' first batches."""
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    share_terms: TermsTable = field(init=False)
    queue_partitions: QueuePartitions | None = None
    """The partitions with delivery state that are led here."""
    queue_service: QueueService | None = None
    sliced_calls: SlicedCalls = field(init=False)
    """For requests that one event lets go on, of which there may be thousands."""
    slices: TimeSlices = field(init=False)
    """For work that would hold the event loop for long: all of it shares one slice per iteration of the loop."""
    views: ViewService = field(init=False)
    telemetry: ClientTelemetry = field(init=False)
    delays: DelayPartitions | None = None
    """The partitions with delayed messages."""
    awaited: dict[str, int] = field(default_factory=dict)
    """Internal topics that were asked for while brokers were away that should have a part of them, and since when."""
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sliced_calls = SlicedCalls(self.clock.monotonic_s, self.timer)
        self.slices = TimeSlices(self.clock.monotonic_s)
        self.views = ViewService(metadata=self.metadata, clock=self.clock, threads=self.threads, slices=self.slices)
        self.telemetry = ClientTelemetry(
            subscriptions=lambda: self.image.client_metrics,
            setting=self.configs.__getitem__,
            now_s=self.clock.monotonic_s,
            run=self.slices.run,
            threads=self.threads,
        )
        self.share_terms = TermsTable(
            image=lambda: self.metadata.image,
            configs=self.configs,
            settings_of=lambda queue: self.queues.delivery_settings(queue),
        )

    def run(self, work: Coroutine[Any, Any, T], then: Callable[[T], None]) -> None:
        """Have something done that takes a while, and go on with its result."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def done(finished: asyncio.Task[T]) -> None:
            self._tasks.discard(finished)
            if not finished.cancelled():
                then(finished.result())

        task.add_done_callback(done)

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    @property
    def queues(self) -> QueueService:
        assert self.queue_service is not None
        return self.queue_service

    @property
    def controller_id(self) -> int:
        """Whom clients take for the controller: any broker will do while there is none, for every one can decide."""
        known = self.image.controller_id
        return known if known in self.image.brokers else self.node_id

    def partition(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """The partition, by its topic's name or (where the name is empty) id. Raises Kafka's errors."""
        table = self.partitions.by_name.get(topic) if topic else self.partitions.by_id.get(topic_id)
        found = table.get(number) if table else None
        if found is not None:
            return found
        self._refuse_view(topic, topic_id)
        if not topic and topic_id not in self.image.topics:
            raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
        known = self.image.by_name.get(topic) if topic else self.image.topics.get(topic_id)
        if known is None:
            raise UnknownTopicOrPartition(
                f"there is no topic {topic!r}; create it, or list topics to see what is there"
            )
        if number in known.partitions:
            raise NotLeaderOrFollower(f"{known.name}-{number} is not led by this broker now; ask for metadata again")
        raise UnknownTopicOrPartition(
            f"topic {known.name!r} has {len(known.partitions)} partitions, asked for partition {number}"
        )

    def view(self, topic: str | None, topic_id: bytes) -> Topic | None:
        """The view that is asked for, by its name or (where the name is empty) id, if it is one."""
        if not self.image.views:
            return None
        found = self.image.shown_by_name.get(topic) if topic else self.image.shown.get(topic_id)
        return found if found is not None and found.view is not None else None

    def _refuse_view(self, topic: str | None, topic_id: bytes) -> None:
        found = self.view(topic, topic_id)
        if found is not None and found.view is not None:
            raise NotAllowedOnView(
                f"{found.name!r} is a view of topic {found.view.of!r}, and is only read; ask this of the topic"
            )

    def readable(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """As `partition`, or that of the topic which a view is of: what is asked is the same for both."""
        found = self.view(topic, topic_id)
        if found is not None and found.view is not None:
            return self.partition("", found.view.topic_id, number)
        return self.partition(topic, topic_id, number)

    def replica(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """As `partition`, or one that this broker follows: what is committed can be read there too (KIP-392)."""
        known = self.image.by_name.get(topic) if topic else self.image.topics.get(topic_id)
        found = self.partitions.replicas.get(known.topic_id, {}).get(number) if known is not None else None
        return found if found is not None and found.leader_epoch >= 0 else self.partition(topic, topic_id, number)

    def followed(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """What another broker follows: as `partition`, or a companion, which nobody else finds."""
        found = self.partitions.companions.get(topic_id, {}).get(number)
        return found if found is not None else self.partition(topic, topic_id, number)

    def topic(self, name: str | None, topic_id: bytes = NIL_UUID) -> Topic:
        """A topic by its name, or by its id where there is no name. Raises Kafka's errors."""
        if not name and topic_id != NIL_UUID:
            by_id = self.image.topics.get(topic_id)
            if by_id is None:
                self._refuse_view("", topic_id)
                raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
            return by_id
        by_name = self.image.by_name.get(name or "")
        if by_name is None:
            self._refuse_view(name, topic_id)
            raise UnknownTopicOrPartition(
                f"there is no topic {name!r}; create it, or list topics to see what is there"
            )
        return by_name

    def shown_topic(self, name: str | None, topic_id: bytes = NIL_UUID) -> Topic:
        """As `topic`, or a view."""
        return self.view(name, topic_id) or self.topic(name, topic_id)

    def leader_of(self, runtimes: StateRuntimes, key: str) -> int:
        """Which broker decides about a key, as far as is known here; NO_LEADER if none does."""
        number, topic = runtimes.partition_of(key), self.image.by_name.get(runtimes.topic)
        state = topic.partitions.get(number) if topic is not None and number is not None else None
        return state.leader if state is not None and state.leader in self.image.brokers else NO_LEADER

    def topic_defaults(self) -> Defaults:
        return Defaults(
            partitions=self.configs["num.partitions"],
            replication_factor=self.configs["default.replication.factor"],
            partitions_max=self.configs["max.partitions.per.topic"],
        )

    @staticmethod
    def new_topic_id() -> bytes:
        return secrets.token_bytes(16)

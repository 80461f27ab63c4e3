"""The broker object passed to every request handler: metadata image, partitions, settings, coordinators and clock."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.broker.client_limits import ClientQuotas
from penstock.broker.client_telemetry import ClientTelemetry
from penstock.broker.configs import Configs
from penstock.broker.delays.partitions import DelayPartitions
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.peers import AskPeer
from penstock.broker.produce.request_order import ProduceOrder
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.service import QueueService
from penstock.broker.schemas.known_ids import KnownSchemaIds
from penstock.broker.schemas.service import RegistryService
from penstock.broker.share.delivery_terms import DeliveryTermsTable
from penstock.broker.share.sessions import ShareSessions
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.broker.views.service import ViewService
from penstock.cluster.image import NO_LEADER, ClusterImage, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.token_registry import DelegationTokens
from penstock.cluster.topic_changes import Defaults
from penstock.cluster.views import NotAllowedOnView
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import (
    CoordinatorNotAvailable,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.foundation.ids import uuid_text
from penstock.foundation.sliced_calls import SlicedCalls
from penstock.foundation.time_slices import TimeSlices
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtimes import StateRuntimes
from penstock.replication.throttle import Throttle
from penstock.security.audit import AuditLog
from penstock.security.authorizer import Authorizer
from penstock.security.stored_keys import StoredKeys
from penstock.wire.messages.registry_call import RegistryCallRequest, RegistryCallResponse
from penstock.wire.schema import NIL_UUID

T = TypeVar("T")


async def no_registry(call: RegistryCallRequest) -> RegistryCallResponse:
    """The initial value of `Broker.answer_registry_call`: raises CoordinatorNotAvailable, which is retried."""
    raise CoordinatorNotAvailable("the schema registry of this broker is not ready; try again")


@dataclass(slots=True, kw_only=True)
class Broker:
    """The state of one broker process that request handlers share, with lookups of partitions and topics."""

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
    """Function that returns the total and the free bytes of the disk that holds the logs."""
    threads: Executor
    """Thread pool for blocking or CPU-bound work: reads of cold segments, decompression of large batches."""
    groups: StateRuntimes
    transactions: StateRuntimes
    authorizer: Authorizer | None = None
    """Decides what clients may do; None if they may do everything."""
    audit: AuditLog | None = None
    tokens: DelegationTokens | None = None
    """Delegation tokens; None in tests of other things."""
    access_keys: StoredKeys | None = None
    """Access keys in the store; None in tests of other things."""
    throttle: Throttle = field(default_factory=Throttle)
    """Replication throttle: limits the bytes sent to followers that are not in sync (KIP-73)."""
    ask: AskPeer
    """Function that sends a request to another broker, given its id."""
    produce_order: ProduceOrder = field(default_factory=ProduceOrder)
    """Runs produce requests of each transactional id one at a time, in order of arrival."""
    share_sessions: ShareSessions = field(default_factory=ShareSessions)
    share_terms: DeliveryTermsTable = field(init=False)
    queue_partitions: QueuePartitions | None = None
    """The partitions led by this broker that have delivery state of queues or share groups."""
    queue_service: QueueService | None = None
    sliced_calls: SlicedCalls = field(init=False)
    """Resumes waiting requests in time slices when one event wakes many of them, possibly thousands."""
    quotas: ClientQuotas = field(init=False)
    """What clients may take, of both protocols."""
    slices: TimeSlices = field(init=False)
    """Runs long computations on the event loop: in each iteration, all of them share one time slice."""
    views: ViewService = field(init=False)
    telemetry: ClientTelemetry = field(init=False)
    schema_registry: RegistryService | None = None
    schema_ids: KnownSchemaIds = field(init=False)
    """The registered schema ids that this broker knows, for topics that validate them."""
    answer_registry_call: Callable[[RegistryCallRequest], Awaitable[RegistryCallResponse]] = no_registry
    """Answers a request to the schema registry that another broker received."""
    delays: DelayPartitions | None = None
    """The partitions led by this broker that have delayed messages."""
    missing_brokers_since_ms: dict[str, int] = field(default_factory=dict)
    """By internal topic: the time at which its creation was first postponed because brokers that should have replicas
    were not running."""
    internal_topic_locks: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """By internal topic: the lock that its creation holds until its coordinators are loaded."""
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sliced_calls = SlicedCalls(self.clock.monotonic_s, self.timer)
        self.slices = TimeSlices(self.clock.monotonic_s)
        self.quotas = ClientQuotas(lambda: self.metadata.image.client_quotas)
        self.views = ViewService(metadata=self.metadata, clock=self.clock, threads=self.threads, slices=self.slices)
        self.telemetry = ClientTelemetry(
            subscriptions=lambda: self.image.client_metrics,
            setting=self.configs.__getitem__,
            now_s=self.clock.monotonic_s,
            run=self.slices.run,
            threads=self.threads,
        )
        self.share_terms = DeliveryTermsTable(
            image=lambda: self.metadata.image,
            configs=self.configs,
            settings_of=lambda queue: self.queues.delivery_settings(queue),
        )

    def run(self, work: Coroutine[Any, Any, T], then: Callable[[T], None]) -> None:
        """Runs `work` as an asyncio task and calls `then` with its result, unless the task is cancelled."""
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
    def delegation_tokens(self) -> DelegationTokens:
        assert self.tokens is not None
        return self.tokens

    @property
    def stored_keys(self) -> StoredKeys:
        assert self.access_keys is not None
        return self.access_keys

    @property
    def controller_id(self) -> int:
        """Id of the controller reported to clients; this broker's id if the controller is not registered."""
        known = self.image.controller_id
        return known if known in self.image.brokers else self.node_id

    def partition(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """Returns a partition that this broker leads, by topic name or (if the name is empty) topic id. Raises a
        Kafka error, such as NotLeaderOrFollower or UnknownTopicOrPartition, if it does not lead the partition."""
        table = self.partitions.by_name.get(topic) if topic else self.partitions.by_id.get(topic_id)
        found = table.get(number) if table else None
        if found is not None:
            return found
        self._refuse_view(topic, topic_id)
        if not topic and topic_id not in self.image.topics:
            raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
        known = self.image.by_name.get(topic) if topic else self.image.topics.get(topic_id)
        if known is None:
            raise UnknownTopicOrPartition(f"there is no topic {topic!r}; create it, or list the topics that exist")
        if number in known.partitions:
            raise NotLeaderOrFollower(f"{known.name}-{number} is not led by this broker; refresh the metadata")
        raise UnknownTopicOrPartition(
            f"topic {known.name!r} has {len(known.partitions)} partitions, asked for partition {number}"
        )

    def view(self, topic: str | None, topic_id: bytes) -> Topic | None:
        """Returns the view (filtered virtual topic) with this name or, if the name is empty, id; else None."""
        if not self.image.views:
            return None
        found = self.image.shown_by_name.get(topic) if topic else self.image.shown.get(topic_id)
        return found if found is not None and found.view is not None else None

    def _refuse_view(self, topic: str | None, topic_id: bytes) -> None:
        found = self.view(topic, topic_id)
        if found is not None and found.view is not None:
            raise NotAllowedOnView(
                f"{found.name!r} is a view of topic {found.view.of!r}, and read-only; send this request for the topic"
            )

    def readable_partition(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """Like `partition`; for a view (filtered virtual topic), returns the partition of the view's source topic."""
        found = self.view(topic, topic_id)
        if found is not None and found.view is not None:
            return self.partition("", found.view.topic_id, number)
        return self.partition(topic, topic_id, number)

    def replica(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """Like `partition`, but also returns a partition that this broker follows, from which consumers may read
        committed records (KIP-392)."""
        known = self.image.by_name.get(topic) if topic else self.image.topics.get(topic_id)
        found = self.partitions.replicas.get(known.topic_id, {}).get(number) if known is not None else None
        return found if found is not None and found.leader_epoch >= 0 else self.partition(topic, topic_id, number)

    def followed_partition(self, topic: str, topic_id: bytes, number: int) -> Partition:
        """Like `partition`, but also finds companion logs, which only followers may fetch: second logs of partitions,
        for delivery state or delayed messages."""
        found = self.partitions.companions.get(topic_id, {}).get(number)
        return found if found is not None else self.partition(topic, topic_id, number)

    def topic(self, name: str | None, topic_id: bytes = NIL_UUID) -> Topic:
        """Returns a topic by name, or by id if the name is empty. Raises a Kafka error if it does not exist."""
        if not name and topic_id != NIL_UUID:
            by_id = self.image.topics.get(topic_id)
            if by_id is None:
                self._refuse_view("", topic_id)
                raise UnknownTopicId(f"no topic has the id {uuid_text(topic_id)}")
            return by_id
        by_name = self.image.by_name.get(name or "")
        if by_name is None:
            self._refuse_view(name, topic_id)
            raise UnknownTopicOrPartition(f"there is no topic {name!r}; create it, or list the topics that exist")
        return by_name

    def shown_topic(self, name: str | None, topic_id: bytes = NIL_UUID) -> Topic:
        """Like `topic`, but also returns views (filtered virtual topics)."""
        return self.view(name, topic_id) or self.topic(name, topic_id)

    def leader_of(self, runtimes: StateRuntimes, key: str) -> int:
        """Returns the id of the broker that coordinates `key`, according to the metadata image; NO_LEADER if there
        is none. `key`: a group id if `runtimes` is Broker.groups, a transactional id if it is Broker.transactions."""
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

"""KafkaClient: connections to the brokers of a cluster, cached metadata (topics, leaders), and retries."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from random import Random
from typing import Any, Final, Self, TypeVar

from penstock.client.address import Address, parse_bootstrap
from penstock.client.connection import ADVICE, Connection, ConnectionSettings, open_connection
from penstock.client.errors import STALE, TRANSIENT, ConnectionFailed, ConnectionLost, ServerError, check, refusal
from penstock.client.metadata import NO_NODE, ClusterView, PartitionInfo, TopicInfo
from penstock.client.retry import Backoff
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

UNKNOWN_TRIES_MAX: Final = 4
"""Number of UNKNOWN_TOPIC_OR_PARTITION responses after which a topic counts as nonexistent, not just as new."""


class Target(Enum):
    """A broker chosen by its role instead of its node id."""

    ANY = "any"
    CONTROLLER = "controller"


class CoordinatorKey(IntEnum):
    """Key types of FindCoordinator."""

    GROUP = 0
    TRANSACTIONAL_ID = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    retry_for_s: float = 30.0
    """How long, in seconds, a retriable request is retried."""
    backoff_first_s: float = 0.05
    backoff_max_s: float = 1.0
    topic_age_max_s: float = 300.0
    """How long, in seconds, cached metadata of a topic is used. Partitions added in that time are not seen."""


class KafkaClient:
    """Routes requests to the brokers of a cluster.

    >>> async with KafkaClient("127.0.0.1:9092") as client:
    ...     topic = await client.topic("orders")
    """

    def __init__(self, bootstrap: str, *, settings: ClientSettings | None = None, rng: Random | None = None) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self.settings: Final = settings or ClientSettings()
        self.rng: Final = rng or Random()
        self.view = ClusterView()
        self._has_metadata = False
        self._refreshed_s: dict[str, float] = {}
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._connecting: defaultdict[tuple[Address, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aenter__(self) -> Self:
        await self.refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(connection.close() for connection in connections.values()))

    # -- connections

    async def connection(self, target: int | Target = Target.ANY, lane: str = "") -> Connection:
        """Returns an open connection to a broker. Requests with the same `lane` share a connection, in order."""
        if target is Target.ANY:
            return await self._any_connection(lane)
        if not self._has_metadata:
            await self.refresh()
        node_id = self.view.controller if isinstance(target, Target) else target
        address = self.view.brokers.get(node_id)
        if address is None:
            raise refusal(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}", f"broker {node_id} is not available")
        return await self._connect(address, lane)

    async def _any_connection(self, lane: str) -> Connection:
        """Returns any open connection that was opened for `lane`; else connects to the first reachable broker."""
        for (_, of_lane), connection in self._connections.items():
            if of_lane == lane and connection.is_open:
                return connection
        failures = []
        for address in dict.fromkeys([*self.view.brokers.values(), *self._bootstrap]):
            try:
                return await self._connect(address, lane)
            except ConnectionFailed as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(str(failure).removesuffix(f"; {ADVICE}") for failure in failures)
        raise ConnectionFailed(f"{reasons}; {ADVICE}")

    async def _connect(self, address: Address, lane: str) -> Connection:
        key = address, lane
        async with self._connecting[key]:
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                connection = await open_connection(address, self.settings.connection)
                self._connections[key] = connection
            return connection

    async def request(self, target: int | Target, message: Any, *, timeout_s: float | None = None) -> Any:
        """Sends a request to one broker, without retries (see `retrying`), and returns the response."""
        connection = await self.connection(target)
        return await connection.request(message, timeout_s=timeout_s)

    async def request_checked(self, target: int | Target, message: Any, what: str) -> Any:
        """Sends a request with retries. Returns the response or raises its error. `what`: the subject
        of error messages, such as `topic 'orders'`."""

        async def attempt() -> Any:
            response = await self.request(target, message)
            check(response.error_code, what, getattr(response, "error_message", None))
            return response

        return await self.retrying(attempt)

    async def request_leader(self, tp: TopicPartition, message: Any) -> Any:
        """Sends a request to the leader of a partition, with retries. Returns the response, or raises its error."""

        async def attempt() -> Any:
            response = await self.request((await self.leader(tp)).leader, message)
            check(response.error_code, f"partition {tp}", response.error_message)
            return response

        return await self.retrying(attempt, topics={tp.topic})

    @property
    def request_timeout_ms(self) -> int:
        return int(self.settings.connection.request_timeout_s * 1000)

    # -- metadata

    async def refresh(self, topics: Collection[str] | None = ()) -> ClusterView:
        """Refreshes the cached metadata of the brokers and of `topics` (None: all); returns it. Creates no topics."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        connection = await self.connection()
        response: MetadataResponse = await connection.request(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        )
        check(response.error_code, "the cluster's metadata")
        if topics is None:
            self.view = ClusterView()
        self.view = self.view.updated(response)
        self._has_metadata = True
        now_s = asyncio.get_running_loop().time()
        self._refreshed_s |= {topic.name or "": now_s for topic in response.topics}
        for topic in response.topics:
            if topics and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise unknown_topic(topic.name or "")
            if topics and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                check(topic.error_code, f"topic {topic.name!r}")
        return self.view

    async def topic(self, name: str) -> TopicInfo:
        """Returns the metadata of a topic, cached for at most `topic_age_max_s`."""

        async def attempt() -> TopicInfo:
            return (await self.refresh([name])).topics[name]

        known = self.view.topics.get(name)
        if known is not None:
            age_s = asyncio.get_running_loop().time() - self._refreshed_s[name]
            if age_s < self.settings.topic_age_max_s:
                return known
        return await self.retrying(attempt)

    async def leader(self, tp: TopicPartition) -> PartitionInfo:
        """Returns a partition's metadata. Raises ServerError if the partition does not exist or has no leader."""
        if tp.topic not in self.view.topics:
            await self.refresh([tp.topic])
        found = self.view.topics[tp.topic].partition(tp.partition)
        if found.leader == NO_NODE:
            raise refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp}")
        return found

    async def by_leader(self, tps: Iterable[TopicPartition]) -> dict[int, list[PartitionInfo]]:
        """Groups partitions by the node id of their leader."""
        found: dict[int, list[PartitionInfo]] = {}
        for tp in tps:
            partition = await self.leader(tp)
            found.setdefault(partition.leader, []).append(partition)
        return found

    async def coordinator(self, key: str, key_type: CoordinatorKey, what: str) -> int:
        """Returns the node id of the coordinator of a group or transactional id; `what` describes `key` in errors."""
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])

        async def attempt() -> int:
            response: FindCoordinatorResponse = await self.request(Target.ANY, request)
            found = response.coordinators[0] if response.coordinators else response
            check(found.error_code, what, found.error_message)
            return found.node_id

        return await self.retrying(attempt)

    # -- retries

    async def retrying(
        self,
        action: Callable[[], Awaitable[T]],
        *,
        topics: Collection[str] = (),
        retry_lost: bool = True,
        retry_for_s: float | None = None,
    ) -> T:
        """Repeats `action` until it succeeds, fails permanently, or `retry_for_s` has passed; returns its result.
        Refreshes the metadata of `topics` between attempts.

        `retry_lost`: also retries if the connection was lost before the response, so that the action may run twice.
        """
        clock = asyncio.get_running_loop()
        deadline_s = clock.time() + (self.settings.retry_for_s if retry_for_s is None else retry_for_s)
        backoff = Backoff(self.rng, first_s=self.settings.backoff_first_s, max_s=self.settings.backoff_max_s)
        unknown = 0
        is_stale = False
        while True:
            try:
                if is_stale:
                    await self.refresh(topics)
                return await action()
            except ConnectionFailed as error:
                if not self._has_metadata or (isinstance(error, ConnectionLost) and not retry_lost):
                    raise
                failure: ConnectionFailed | ServerError = error
            except ServerError as error:
                unknown += error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if error.code not in STALE | TRANSIENT or unknown >= UNKNOWN_TRIES_MAX:
                    raise
                failure = error
            is_stale = isinstance(failure, ConnectionFailed) or failure.code in STALE
            wait_s = backoff.next_s()
            if clock.time() + wait_s > deadline_s:
                raise failure
            await asyncio.sleep(wait_s)


def unknown_topic(name: str) -> ServerError:
    return refusal(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name,
        f"there is no topic {name!r}; create it with `penstock topic create {name}`, "
        "or list the topics with `penstock topic list`",
    )

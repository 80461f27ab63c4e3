"""Batches that are ready, on their way: several at a time, and each partition in order.

What is sent again is the same, byte for byte, so that the leader knows a batch by its sequence. It remembers five of
each producer; no more than that are under way in a partition, and so nothing is written twice or in another order.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Any, Final

from penstock.client.cluster import UNKNOWN_TRIES_MAX, KafkaClient, unknown_topic
from penstock.client.errors import (
    STALE,
    TRANSIENT,
    ConnectionFailed,
    ServerError,
    UnsupportedByBroker,
    error_code,
    refusal,
)
from penstock.client.metadata import NO_NODE, TopicInfo
from penstock.client.producer import PRODUCE_BY_NAME, Acks
from penstock.client.retry import Backoff
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

UNDER_WAY_MAX: Final = 5
"""In a partition: as many as its leader remembers."""
JOINS_FROM: Final = 12
"""The first version of Produce by which a partition joins a transaction by being written to (KIP-890)."""
_KEPT: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""The batch is in the log; the second, since so long that the leader has forgotten where."""
_AGAIN: Final = STALE | TRANSIENT | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""The same batch may be taken a little later; the last, when the transaction before has ended everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    under_way_max: int = UNDER_WAY_MAX
    """Batches of one partition."""
    request_bytes_max: int = 4 << 20
    """Of the batches in one request; a larger one goes alone."""
    buffer_bytes_max: int = 32 << 20
    """What may be in line or under way; then `send` waits."""
    delivery_timeout_s: float = 120.0
    """How long a batch is tried before it fails."""


class _State(Enum):
    WAITING = auto()
    UNDER_WAY = auto()
    KEPT = auto()


class _QueuedBatch:
    """One batch in line."""

    __slots__ = ("batch", "deadline_s", "state")

    def __init__(self, batch: bytearray) -> None:
        self.batch = batch
        self.state = _State.WAITING
        self.deadline_s = 0.0
        """When it fails; counted from when it is first sent."""


class _Lane:
    """The line of one partition. What is kept stays in it until all before it are kept."""

    __slots__ = ("backoff", "failure", "is_known", "name", "queued_batches", "under_way", "unknown")

    def __init__(self, name: TopicPartition, backoff: Backoff) -> None:
        self.name = name
        self.queued_batches: deque[_QueuedBatch] = deque()
        self.under_way = 0
        self.failure: PenstockError | None = None
        """Why what is in line must be sent again; until then nothing is."""
        self.is_known = False
        """Whether the leader has taken a batch. One that knows nothing of a producer would take the second for the
        first, if that was lost on the way."""
        self.backoff = backoff
        self.unknown = 0
        """How often in a row the partition was not there."""

    def next(self, width: int) -> _QueuedBatch | None:
        """What is to be sent now, if anything is."""
        if self.failure is not None:
            return None
        for queued in islice(self.queued_batches, width if self.is_known else 1):
            if queued.state is _State.WAITING:
                return queued
        return None


_Load = list[tuple[_Lane, _QueuedBatch]]


class BatchSender:
    """Sends batches to the leaders of their partitions. A failure that does not pass is told by all that follows."""

    def __init__(
        self, client: KafkaClient, settings: SendSettings | None = None, *, transactional_id: str | None = None
    ) -> None:
        self._client = client
        self._settings = settings or SendSettings()
        self._transactional_id = transactional_id
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_pumping = False
        self._changed = asyncio.Event()
        self.failure: PenstockError | None = None
        self.held_bytes = 0
        """What is in line or under way."""

    async def send(self, name: TopicPartition, batch: bytearray) -> None:
        """Put a batch in line. Waits while too much is."""
        await self._until(lambda: self.held_bytes < self._settings.buffer_bytes_max)
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name, self._new_backoff())
        lane.queued_batches.append(_QueuedBatch(batch))
        self.held_bytes += len(batch)
        self._pump_soon()

    async def flush(self) -> None:
        """Wait until everything is kept."""
        await self._until(lambda: not self.held_bytes)

    async def close(self) -> None:
        """Stop at once: what is under way may be written or not, what is in line is forgotten."""
        self.failure = self.failure or SenderClosed("the producer was closed; make another one")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lanes.clear()
        self.held_bytes = 0

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while self.failure is None and not is_so():
            self._changed.clear()
            await self._changed.wait()
        if self.failure is not None:
            raise self.failure

    def _new_backoff(self) -> Backoff:
        settings = self._client.settings
        return Backoff(self._client.rng, first_s=settings.backoff_first_s, max_s=settings.backoff_max_s)

    # -- sending

    def _pump_soon(self) -> None:
        """At the end of this turn of the loop: what comes in one turn goes in few requests."""
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        while self.failure is None:
            ready = [
                (lane, queued)
                for lane in self._lanes.values()
                if (queued := lane.next(self._settings.under_way_max)) is not None
            ]
            if not ready:
                return
            for leader, load in self._by_leader(ready).items():
                for part in self._requests(load):
                    self._start(self._deliver(leader, part))

    def _by_leader(self, ready: _Load) -> dict[int, _Load]:
        """One batch of each lane, by the node id of who leads it. Those that nobody leads fail for now."""
        now_s = asyncio.get_running_loop().time()
        found: dict[int, _Load] = {}
        for lane, queued in ready:
            queued.state = _State.UNDER_WAY
            queued.deadline_s = queued.deadline_s or now_s + self._settings.delivery_timeout_s
            lane.under_way += 1
            topic = self._client.view.topics.get(lane.name.topic)
            partition = None if topic is None else topic.partitions.get(lane.name.partition)
            if partition is None:
                self._settle(lane, queued, unknown_topic(lane.name.topic))
            elif partition.leader == NO_NODE:
                self._settle(lane, queued, refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {lane.name}"))
            else:
                found.setdefault(partition.leader, []).append((lane, queued))
        return found

    def _requests(self, load: _Load) -> Iterable[_Load]:
        """What goes in one request each."""
        part: _Load = []
        size_bytes = 0
        for lane, queued in load:
            if part and size_bytes + len(queued.batch) > self._settings.request_bytes_max:
                yield part
                part, size_bytes = [], 0
            part.append((lane, queued))
            size_bytes += len(queued.batch)
        if part:
            yield part

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        cause = None if task.cancelled() else task.exception()
        if cause is not None:
            self._fail(SenderClosed(f"the producer broke: {cause!r}; make another one"))

    async def _deliver(self, leader: int, load: _Load) -> None:
        """One request. They leave in the order in which they were started, for none waits for more than the last."""
        try:
            connection = await self._client.connection(leader)
            topics = self._topics_of(load)
            newest = None if all(topic.has_id for topic in topics.values()) else PRODUCE_BY_NAME
            if self._transactional_id is not None and connection.version_of(ProduceRequest, newest) < JOINS_FROM:
                raise UnsupportedByBroker(
                    f"{connection.address} does not take partitions into a transaction by itself (KIP-890); "
                    "use a newer broker"
                )
            response: ProduceResponse = await connection.request(self._request(load, topics), newest=newest)
        except (ConnectionFailed, ServerError, UnsupportedByBroker) as error:
            for lane, queued in load:
                self._settle(lane, queued, error)
            return
        answers = _answers(response)
        for lane, queued in load:
            name, number = lane.name
            answer = answers.get((name, number)) or answers.get((topics[name].topic_id, number))
            self._settle(lane, queued, _error(lane.name, answer))

    def _topics_of(self, load: _Load) -> dict[str, TopicInfo]:
        found = {}
        for lane, _ in load:
            topic = self._client.view.topics.get(lane.name.topic)
            if topic is None:
                raise unknown_topic(lane.name.topic)
            found[topic.name] = topic
        return found

    def _request(self, load: _Load, topics: Mapping[str, TopicInfo]) -> ProduceRequest:
        partitions: dict[str, list[PartitionProduceData]] = {}
        for lane, queued in load:
            data = PartitionProduceData(index=lane.name.partition, records=queued.batch)
            partitions.setdefault(lane.name.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=Acks.ALL,
            # The broker gives up first, and says so, before the connection is given up.
            timeout_ms=int(self._client.settings.connection.request_timeout_s * 1000) * 2 // 3,
            topic_data=[
                TopicProduceData(name=name, topic_id=topics[name].topic_id, partition_data=data)
                for name, data in partitions.items()
            ],
        )

    # -- what becomes of it

    def _settle(self, lane: _Lane, queued: _QueuedBatch, error: PenstockError | None) -> None:
        lane.under_way -= 1
        if error is None:
            queued.state = _State.KEPT
            lane.is_known = True
            lane.unknown = 0
            lane.backoff = self._new_backoff()
            while lane.queued_batches and lane.queued_batches[0].state is _State.KEPT:
                self.held_bytes -= len(lane.queued_batches.popleft().batch)
            self._changed.set()
        else:
            queued.state = _State.WAITING
            if self._passes(lane, queued, error):
                lane.failure = lane.failure or error
            else:
                self._fail(error)
        if lane.failure is not None and not lane.under_way:
            self._start(self._retry(lane, lane.failure))
        elif self.failure is None:
            self._pump_soon()

    def _passes(self, lane: _Lane, queued: _QueuedBatch, error: PenstockError) -> bool:
        """Whether the same batch may be taken later."""
        if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return lane.queued_batches[0] is not queued  # one before it was not taken, and comes again
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            lane.unknown += 1
            return lane.unknown < UNKNOWN_TRIES_MAX
        return isinstance(error, ConnectionFailed) or error.code in _AGAIN

    async def _retry(self, lane: _Lane, failure: PenstockError) -> None:
        """Wait a little, look who leads now, then let the lane go on with the first that is not kept."""
        wait_s = lane.backoff.next_s()
        if asyncio.get_running_loop().time() + wait_s > lane.queued_batches[0].deadline_s:
            self._fail(failure)
            return
        await asyncio.sleep(wait_s)
        if isinstance(failure, ConnectionFailed) or failure.code in STALE:
            with suppress(ConnectionFailed, ServerError):  # then it goes to who led before, and fails again or not
                await self._client.refresh([lane.name.topic])
        lane.failure = None
        self._pump_soon()

    def _fail(self, error: PenstockError) -> None:
        self.failure = self.failure or error
        self._changed.set()


class SenderClosed(PenstockError):
    """The producer was closed, or broke, before everything was sent."""


def _answers(response: ProduceResponse) -> dict[tuple[str | bytes, int], PartitionProduceResponse]:
    """By the topic's name, or its id in the versions that have no names."""
    return {
        (topic.name or topic.topic_id, answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }


def _error(name: TopicPartition, answer: PartitionProduceResponse | None) -> ServerError | None:
    if answer is None:
        return refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"partition {name}", f"the answer leaves out partition {name}")
    if error_code(answer.error_code) in _KEPT and answer.error_code >= 0:
        return None
    return refusal(answer.error_code, f"partition {name}", answer.error_message)

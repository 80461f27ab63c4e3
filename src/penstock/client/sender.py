"""Batch sender: pipelines encoded batches to the leaders, with retries that keep the order of each partition.

A batch is retried byte for byte, so that the leader recognises it by its sequence number. A leader remembers a
producer's last five batches; no more are in flight per partition, so none is written twice or out of order.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
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
from penstock.client.send_settings import SendSettings
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

JOINS_FROM: Final = 12
"""The first version of Produce that adds a partition to the transaction implicitly (KIP-890)."""
_WRITTEN_CODES: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
"""Response codes of a batch that is in the log; with DUPLICATE_SEQUENCE_NUMBER, its offset is not reported."""
_RETRIABLE_CODES: Final = STALE | TRANSIENT | {ErrorCode.CONCURRENT_TRANSACTIONS}
"""Error codes after which the same batch may be accepted later, for example after the previous transaction's end."""


class _State(Enum):
    WAITING = auto()
    IN_FLIGHT = auto()
    WRITTEN = auto()


class _QueuedBatch:
    __slots__ = ("batch", "deadline_s", "state")

    def __init__(self, batch: bytearray) -> None:
        self.batch = batch
        self.state = _State.WAITING
        self.deadline_s = 0.0
        """Event loop time after which the batch is not retried; set when it is first sent."""


class _PartitionQueue:
    """The queued batches of one partition. An acknowledged batch stays queued until all earlier batches are
    acknowledged."""

    __slots__ = ("backoff", "failure", "has_producer_state", "in_flight", "queued_batches", "tp", "unknown_count")

    def __init__(self, tp: TopicPartition, backoff: Backoff) -> None:
        self.tp = tp
        self.queued_batches: deque[_QueuedBatch] = deque()
        self.in_flight = 0
        self.failure: PenstockError | None = None
        """The error for which batches wait to be retried, or None. While an error is set, no batch is sent."""
        self.has_producer_state = False
        """Whether the leader has accepted a batch. Until then only one is in flight, so that no batch is skipped."""
        self.backoff = backoff
        self.unknown_count = 0
        """Number of consecutive responses that the partition does not exist."""

    def next(self, in_flight_max: int) -> _QueuedBatch | None:
        """Returns the next batch to send; None if there is none, too many are in flight, or a retry is pending."""
        if self.failure is not None:
            return None
        for queued in islice(self.queued_batches, in_flight_max if self.has_producer_state else 1):
            if queued.state is _State.WAITING:
                return queued
        return None


_Batches = list[tuple[_PartitionQueue, _QueuedBatch]]


class BatchSender:
    """Sends batches to the leaders of their partitions. After a permanent failure, every call raises that error."""

    def __init__(
        self, client: KafkaClient, settings: SendSettings | None = None, *, transactional_id: str | None = None
    ) -> None:
        self._client = client
        self._settings = settings or SendSettings()
        self._transactional_id = transactional_id
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_send_scheduled = False
        self._changed = asyncio.Event()
        self.failure: PenstockError | None = None
        self.buffered_bytes = 0
        """Bytes of batches queued or in flight."""

    async def send(self, tp: TopicPartition, batch: bytearray) -> None:
        """Queues a batch. Waits while the buffer is full."""
        await self._wait_until(lambda: self.buffered_bytes < self._settings.buffer_bytes_max)
        queue = self._queues.get(tp)
        if queue is None:
            queue = self._queues[tp] = _PartitionQueue(tp, self._new_backoff())
        queue.queued_batches.append(_QueuedBatch(batch))
        self.buffered_bytes += len(batch)
        self._schedule_send()

    async def flush(self) -> None:
        """Waits until all batches are written."""
        await self._wait_until(lambda: not self.buffered_bytes)

    async def close(self) -> None:
        """Stops immediately: batches in flight may or may not be written, queued batches are dropped."""
        self.failure = self.failure or SenderClosed("the producer was closed; create a new one")
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._queues.clear()
        self.buffered_bytes = 0

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while self.failure is None and not condition():
            self._changed.clear()
            await self._changed.wait()
        if self.failure is not None:
            raise self.failure

    def _new_backoff(self) -> Backoff:
        settings = self._client.settings
        return Backoff(self._client.rng, first_s=settings.backoff_first_s, max_s=settings.backoff_max_s)

    # -- sending

    def _schedule_send(self) -> None:
        """Schedules sending for the next event loop iteration, so that batches queued until then share requests."""
        if not self._is_send_scheduled:
            self._is_send_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_ready)

    def _send_ready(self) -> None:
        self._is_send_scheduled = False
        while self.failure is None:
            ready = [
                (queue, queued)
                for queue in self._queues.values()
                if (queued := queue.next(self._settings.in_flight_max)) is not None
            ]
            if not ready:
                return
            for leader, batches in self._by_leader(ready).items():
                for part in self._requests(batches):
                    self._start(self._deliver(leader, part))

    def _by_leader(self, ready: _Batches) -> dict[int, _Batches]:
        """Groups the ready batches by the node id of their leader. Batches without a leader fail with an error."""
        now_s = asyncio.get_running_loop().time()
        found: dict[int, _Batches] = {}
        for queue, queued in ready:
            queued.state = _State.IN_FLIGHT
            queued.deadline_s = queued.deadline_s or now_s + self._settings.delivery_timeout_s
            queue.in_flight += 1
            topic = self._client.view.topics.get(queue.tp.topic)
            partition = None if topic is None else topic.partitions.get(queue.tp.partition)
            if partition is None:
                self._complete(queue, queued, unknown_topic(queue.tp.topic))
            elif partition.leader == NO_NODE:
                self._complete(queue, queued, refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {queue.tp}"))
            else:
                found.setdefault(partition.leader, []).append((queue, queued))
        return found

    def _requests(self, batches: _Batches) -> Iterable[_Batches]:
        """Splits the batches into requests; yields the batches of each request."""
        part: _Batches = []
        size_bytes = 0
        for queue, queued in batches:
            if part and size_bytes + len(queued.batch) > self._settings.request_bytes_max:
                yield part
                part, size_bytes = [], 0
            part.append((queue, queued))
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
            self._fail(SenderClosed(f"the producer failed: {cause!r}; create a new one"))

    async def _deliver(self, leader: int, batches: _Batches) -> None:
        """Sends one request to a leader. Requests to the same leader leave in the order of these calls."""
        try:
            connection = await self._client.connection(leader)
            topics = self._topics_of(batches)
            version_max = None if all(topic.has_id for topic in topics.values()) else PRODUCE_BY_NAME
            if self._transactional_id is not None and connection.version_of(ProduceRequest, version_max) < JOINS_FROM:
                raise UnsupportedByBroker(
                    f"{connection.address} does not add partitions to transactions implicitly (KIP-890); "
                    "use a newer broker"
                )
            response: ProduceResponse = await connection.request(
                self._build(batches, topics), version_max=version_max
            )
        except (ConnectionFailed, ServerError, UnsupportedByBroker) as error:
            for queue, queued in batches:
                self._complete(queue, queued, error)
            return
        results = _by_partition(response)
        for queue, queued in batches:
            name, number = queue.tp
            result = results.get((name, number)) or results.get((topics[name].topic_id, number))
            self._complete(queue, queued, _error(queue.tp, result))

    def _topics_of(self, batches: _Batches) -> dict[str, TopicInfo]:
        found = {}
        for queue, _ in batches:
            topic = self._client.view.topics.get(queue.tp.topic)
            if topic is None:
                raise unknown_topic(queue.tp.topic)
            found[topic.name] = topic
        return found

    def _build(self, batches: _Batches, topics: Mapping[str, TopicInfo]) -> ProduceRequest:
        partitions: dict[str, list[PartitionProduceData]] = {}
        for queue, queued in batches:
            data = PartitionProduceData(index=queue.tp.partition, records=queued.batch)
            partitions.setdefault(queue.tp.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=Acks.ALL,
            # Shorter than the request timeout: the broker answers with an error before the connection is closed.
            timeout_ms=self._client.request_timeout_ms * 2 // 3,
            topic_data=[
                TopicProduceData(name=name, topic_id=topics[name].topic_id, partition_data=data)
                for name, data in partitions.items()
            ],
        )

    # -- results and retries

    def _complete(self, queue: _PartitionQueue, queued: _QueuedBatch, error: PenstockError | None) -> None:
        queue.in_flight -= 1
        if error is None:
            queued.state = _State.WRITTEN
            queue.has_producer_state = True
            queue.unknown_count = 0
            queue.backoff = self._new_backoff()
            while queue.queued_batches and queue.queued_batches[0].state is _State.WRITTEN:
                self.buffered_bytes -= len(queue.queued_batches.popleft().batch)
            self._changed.set()
        else:
            queued.state = _State.WAITING
            if self._is_retriable(queue, queued, error):
                queue.failure = queue.failure or error
            else:
                self._fail(error)
        if queue.failure is not None and not queue.in_flight:
            self._start(self._retry(queue, queue.failure))
        elif self.failure is None:
            self._schedule_send()

    def _is_retriable(self, queue: _PartitionQueue, queued: _QueuedBatch, error: PenstockError) -> bool:
        """Returns whether the same batch may be accepted if it is sent later."""
        if error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return queue.queued_batches[0] is not queued  # an earlier batch was not accepted, and is sent again
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            queue.unknown_count += 1
            return queue.unknown_count < UNKNOWN_TRIES_MAX
        return isinstance(error, ConnectionFailed) or error.code in _RETRIABLE_CODES

    async def _retry(self, queue: _PartitionQueue, failure: PenstockError) -> None:
        """Waits for the backoff, refreshes stale metadata, then resumes with the first batch not yet written."""
        wait_s = queue.backoff.next_s()
        if asyncio.get_running_loop().time() + wait_s > queue.queued_batches[0].deadline_s:
            self._fail(failure)
            return
        await asyncio.sleep(wait_s)
        if isinstance(failure, ConnectionFailed) or failure.code in STALE:
            with suppress(ConnectionFailed, ServerError):  # then it is sent to the previous leader
                await self._client.refresh([queue.tp.topic])
        queue.failure = None
        self._schedule_send()

    def _fail(self, error: PenstockError) -> None:
        self.failure = self.failure or error
        self._changed.set()


class SenderClosed(PenstockError):
    """The producer was closed, or failed, before all batches were sent."""


def _by_partition(response: ProduceResponse) -> dict[tuple[str | bytes, int], PartitionProduceResponse]:
    """Returns each partition's result, by topic name (topic id in versions without names) and partition index."""
    return {
        (topic.name or topic.topic_id, result.index): result
        for topic in response.responses
        for result in topic.partition_responses
    }


def _error(tp: TopicPartition, result: PartitionProduceResponse | None) -> ServerError | None:
    if result is None:
        return refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"partition {tp}", f"no response for partition {tp}")
    if error_code(result.error_code) in _WRITTEN_CODES and result.error_code >= 0:
        return None
    return refusal(result.error_code, f"partition {tp}", result.error_message)

"""Routes sends and acknowledgements of a queue to the partition leaders, with retries during failover.

Requests for partitions led by this broker run locally. Other requests are sent to the leader, and retried until a
deadline while the leader changes.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

from penstock.broker.queues.deduplication import DeduplicationIndex
from penstock.broker.queues.message_appender import MessageAppender
from penstock.broker.queues.messages import MessageAck, NewMessage, QueueUnavailable, Sent
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.peer_brokers import RETRIABLE_ERRORS, PeerBrokers
from penstock.broker.queues.pending_reply import PendingReply
from penstock.client.partitioner import partition_of_key
from penstock.cluster.image import ClusterImage
from penstock.cluster.queues import SCOPE_GROUP, Queue
from penstock.foundation.clock import Clock
from penstock.foundation.errors import NotLeaderOrFollower, PenstockError, UnknownTopicId
from penstock.foundation.ids import TopicIdPartition
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, Counts
from penstock.queues.errors import AlreadyFinished
from penstock.queues.settings import DeliverySettings
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.wire.messages.queue_control import QueueControlRequest

RETRY_TIMEOUT_S: Final = 15.0
"""Time, in seconds, for which requests are retried while a partition has no leader."""
RETRY_PAUSE_S: Final = 0.1
_FIFO_RULES: Final = {AckType.DONE: AckType.DELETE}
_STANDARD_RULES: Final = {AckType.RENEW: AckType.CHANGE}
"""Requested acknowledgement type -> type applied instead in a standard queue (in a FIFO queue: _FIFO_RULES), so that
the behaviour is that of AWS. All other types are applied as requested."""
T = TypeVar("T")
SendResults = list[Sent | PenstockError]
AckResults = list[PenstockError | None]
AckReply = PendingReply[Sequence[PenstockError | None]]
DoHere = Callable[[QueuePartition], Awaitable[Counts]]


class QueueRouter:
    """Finds the leaders of a queue's partitions and sends requests to them."""

    def __init__(
        self,
        *,
        image: Callable[[], ClusterImage],
        partitions: Partitions,
        queue_partitions: QueuePartitions,
        peer_brokers: PeerBrokers,
        appender: MessageAppender,
        settings_of: Callable[[Queue], DeliverySettings],
        clock: Clock,
        threads: Executor,
    ) -> None:
        self._image = image
        self._partitions = partitions
        self._queue_partitions = queue_partitions
        self._peer_brokers = peer_brokers
        self._appender = appender
        self._settings_of = settings_of
        self._clock = clock
        self._threads = threads
        self._turns = itertools.count()
        self._duplicates: dict[TopicIdPartition, tuple[int, DeduplicationIndex]] = {}
        """Deduplication indexes of FIFO queues' partitions, each with the leader epoch in which it was created."""

    # -- leaders

    def count(self, queue: Queue) -> int:
        topic = self._image().topics.get(queue.topic_id)
        if topic is None:
            raise UnknownTopicId(f"queue {queue.name!r} was deleted")
        return len(topic.partitions)

    def leader(self, queue: Queue, number: int) -> int:
        """Returns the broker id of a partition's leader. Raises NotLeaderOrFollower if there is no leader."""
        image = self._image()
        topic = image.topics.get(queue.topic_id)
        state = topic.partitions.get(number) if topic is not None else None
        if state is None:
            raise UnknownTopicId(f"queue {queue.name!r} was deleted")
        if state.leader not in image.brokers:
            raise NotLeaderOrFollower(f"partition {number} of queue {queue.name!r} has no leader now")
        return state.leader

    def _led_here(self, queue: Queue, number: int) -> Partition | None:
        return self._partitions.by_id.get(queue.topic_id, {}).get(number)

    # -- sending

    async def send(self, queue: Queue, messages: Sequence[NewMessage]) -> SendResults:
        """Sends messages; returns the results in the order of the messages."""
        if not messages:
            return []
        if not queue.settings.is_fifo:
            return _results(await _retry(lambda: self._send_anywhere(queue, messages)), len(messages))
        count = self.count(queue)
        numbers = [partition_of_key(message.key or b"", count) if count > 1 else 0 for message in messages]

        async def send_part(number: int, rows: Sequence[int]) -> SendResults:
            part = [messages[row] for row in rows]
            # A retry is safe, because the leader detects duplicates.
            reply = await _retry(lambda: self._send_to(queue, number, part), may_repeat=True)
            return _results(reply, len(rows))

        return await _by_partition(numbers, send_part)

    async def _send_anywhere(self, queue: Queue, messages: Sequence[NewMessage]) -> list[Sent]:
        """Sends messages to the first partition that accepts them; tries partitions led by this broker first."""
        led, turn = [*self._partitions.by_id.get(queue.topic_id, ())], next(self._turns)
        for number in _rotate(led, turn):
            try:
                return await self.send_here(queue, number, messages)
            except RETRIABLE_ERRORS as error:
                last_error = error
        for number in _rotate([number for number in range(self.count(queue)) if number not in led], turn):
            try:
                return await self._send_to(queue, number, messages)
            except RETRIABLE_ERRORS as error:
                last_error = error
        raise last_error

    async def _send_to(self, queue: Queue, number: int, messages: Sequence[NewMessage]) -> list[Sent]:
        if self._led_here(queue, number) is not None:
            return await self.send_here(queue, number, messages)
        reply: PendingReply[list[Sent]] = PendingReply()
        self._peer_brokers.send(self._remote_leader(queue, number), queue, number, messages, reply)
        return await reply

    def _remote_leader(self, queue: Queue, number: int) -> int:
        leader = self.leader(queue, number)
        if leader == self._peer_brokers.node_id:
            raise NotLeaderOrFollower(f"partition {number} of queue {queue.name!r} is being taken over")
        return leader

    async def send_here(self, queue: Queue, number: int, messages: Sequence[NewMessage]) -> list[Sent]:
        """Sends messages to a partition led by this broker."""
        while True:
            partition = self._led_here(queue, number)
            if partition is None or not partition.is_online:
                raise NotLeaderOrFollower(f"partition {number} of queue {queue.name!r} is led by another broker now")
            duplicates = self._duplicates_of(partition, queue) if queue.settings.is_fifo else None
            if duplicates is None or duplicates.is_loaded:
                sent: PendingReply[list[Sent]] = PendingReply()
                self._appender.send(partition, messages, sent, duplicates)
                return await sent
            loaded: PendingReply[None] = PendingReply()
            duplicates.when_loaded(loaded)
            await loaded

    def _duplicates_of(self, partition: Partition, queue: Queue) -> DeduplicationIndex:
        """Returns the deduplication index of a FIFO queue's partition, after removing ids of purged messages."""
        here = self._queue_partition(queue, partition.name.partition)  # its delivery state has the last purge
        tp, is_by_group = partition.tp, queue.settings.deduplication_scope == SCOPE_GROUP
        epoch, found = self._duplicates.get(tp, (partition.leader_epoch, None))
        if found is None or epoch != partition.leader_epoch or found.is_by_group != is_by_group:
            if found is not None:
                found.close()  # the next index would not know messages sent with this one
            found = DeduplicationIndex(partition, is_by_group=is_by_group, clock=self._clock, threads=self._threads)
            self._duplicates[tp] = (partition.leader_epoch, found)
        # Also before ids are loaded: those of messages that were purged need no memory.
        found.forget_below(here.purges.purged_to(queue.name))
        return found

    def apply(self) -> None:
        """Drops the deduplication indexes of partitions that this broker no longer leads."""
        for tp in [known for known in self._duplicates if partition_is_gone(self._partitions, known)]:
            self._duplicates.pop(tp)[1].close()

    # -- acknowledging

    async def acknowledge(self, queue: Queue, items: Sequence[MessageAck]) -> AckResults:
        """Acknowledges messages; returns an error or None for each message, in the order of `items`."""
        numbers = [item.partition for item in items]
        here = self._queue_partitions.find(queue.topic_id, numbers[0]) if len(set(numbers)) == 1 else None
        if here is not None:  # most requests; after an error, the general way below retries
            with contextlib.suppress(PenstockError):
                return list(await self._submit(here, queue, items))

        async def acknowledge_part(number: int, rows: Sequence[int]) -> AckResults:
            part = [items[row] for row in rows]
            tries = itertools.count()

            async def attempt() -> AckResults:
                is_again = next(tries) > 0
                reply = await self._acknowledge_at(queue, number, part)
                if is_again:
                    # The first attempt may have succeeded and its response been lost.
                    reply = [
                        None if isinstance(error, AlreadyFinished) and item.ack_type is AckType.DONE else error
                        for error, item in zip(reply, part, strict=True)
                    ]
                return reply

            reply = await _retry(attempt, may_repeat=True)
            return [reply] * len(rows) if isinstance(reply, PenstockError) else reply

        return await _by_partition(numbers, acknowledge_part)

    async def _acknowledge_at(self, queue: Queue, number: int, items: Sequence[MessageAck]) -> AckResults:
        """Acknowledges messages of one partition: here if this broker leads the partition, else at its leader."""
        if self._led_here(queue, number) is not None:
            return list(await self._submit(self._queue_partition(queue, number), queue, items))
        reply: AckReply = PendingReply()
        self._peer_brokers.acknowledge(self._remote_leader(queue, number), queue, items, reply)
        results = list(await reply)
        for error in results:
            if isinstance(error, RETRIABLE_ERRORS):
                raise error  # a partition's acknowledgements succeed or fail together
        return results

    async def acknowledge_here(self, queue: Queue, items: Sequence[MessageAck]) -> AckResults:
        """Acknowledges messages on partitions led by this broker. Raises NotLeaderOrFollower for other partitions."""
        numbers = [item.partition for item in items]
        here = {number: self._queue_partition(queue, number) for number in numbers}

        async def acknowledge_part(number: int, rows: Sequence[int]) -> AckResults:
            try:
                return list(await self._submit(here[number], queue, [items[row] for row in rows]))
            except PenstockError as error:
                return [error] * len(rows)

        return await _by_partition(numbers, acknowledge_part)

    def _submit(self, partition: QueuePartition, queue: Queue, items: Sequence[MessageAck]) -> AckReply:
        """Acknowledges messages of a partition led by this broker."""
        reply: AckReply = PendingReply()
        partition.acknowledge(self._command(queue, items, partition.now_ms), reply)
        return reply

    def _queue_partition(self, queue: Queue, number: int) -> QueuePartition:
        found = self._queue_partitions.find(queue.topic_id, number)
        if found is None:
            raise NotLeaderOrFollower(f"{queue.name!r}-{number} is led by another broker, or is still loading")
        return found

    def _command(self, queue: Queue, items: Sequence[MessageAck], now_ms: int) -> Acknowledge:
        rules = _FIFO_RULES if queue.settings.is_fifo else _STANDARD_RULES
        acknowledgements = tuple(
            Acknowledgement(
                item.offset, item.offset, item.holder, rules.get(item.ack_type, item.ack_type), now_ms + item.delay_ms
            )
            for item in items
        )
        return Acknowledge(queue.name, acknowledgements, self._settings_of(queue))

    # -- all partitions

    async def control_all(self, queue: Queue, request: QueueControlRequest, do_here: DoHere) -> dict[int, Counts]:
        """Runs the action of `request`, such as PURGE, on all partitions: calls `do_here` for those led by this
        broker, and sends `request` to the leaders of the others. Returns the message counts by partition."""
        done: dict[int, Counts] = {}

        async def attempt() -> dict[int, Counts]:
            if not queue.is_same(self._image().queues.get(queue.name)):
                raise UnknownTopicId(f"queue {queue.name!r} was deleted")
            missing = [number for number in range(self.count(queue)) if number not in done]
            nodes = set()
            for number in missing:
                here = self._queue_partitions.find(queue.topic_id, number)
                if here is not None:
                    done[number] = await do_here(here)
                else:
                    nodes.add(self._remote_leader(queue, number))
            for node in nodes:
                reply: PendingReply[dict[int, Counts]] = PendingReply()
                self._peer_brokers.control(node, request, reply)
                done.update(await reply)
            if len(done) < self.count(queue):
                raise NotLeaderOrFollower(f"not all partitions of queue {queue.name!r} could be reached")
            return done

        reply = await _retry(attempt, may_repeat=True)
        if isinstance(reply, PenstockError):
            raise reply
        return reply


def partition_is_gone(partitions: Partitions, tp: TopicIdPartition) -> bool:
    return tp.partition not in partitions.by_id.get(tp.topic_id, ())


def _rotate(numbers: list[int], turn: int) -> list[int]:
    """Returns the numbers in order, starting at index `turn` modulo their count."""
    if len(numbers) <= 1:
        return numbers
    first = turn % len(numbers)
    return numbers[first:] + numbers[:first]


async def _by_partition(
    numbers: Sequence[int], work: Callable[[int, Sequence[int]], Coroutine[Any, Any, list[T]]]
) -> list[T]:
    """Calls `work(partition, indexes)` once per partition; returns the results of all items in order. `numbers`: the
    partition of each item; `indexes`: the positions of the partition's items in `numbers`."""
    if numbers and numbers.count(numbers[0]) == len(numbers):  # no task is needed
        return await work(numbers[0], range(len(numbers)))
    rows_of: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        rows_of.setdefault(number, []).append(row)
    results = await asyncio.gather(*(work(number, rows) for number, rows in rows_of.items()))
    by_row: dict[int, T] = {}
    for rows, result in zip(rows_of.values(), results, strict=True):
        by_row.update(zip(rows, result, strict=True))
    return [by_row[row] for row in range(len(numbers))]


async def _retry(attempt: Callable[[], Awaitable[T]], *, may_repeat: bool = False) -> T | PenstockError:
    """Retries `attempt` after retriable errors; returns its result, or the last error after RETRY_TIMEOUT_S.
    `may_repeat`: whether to retry also after QueueUnavailable, which may mean that the attempt was executed."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + RETRY_TIMEOUT_S
    while True:
        try:
            return await attempt()
        except PenstockError as error:
            is_retriable = isinstance(error, RETRIABLE_ERRORS) or (may_repeat and isinstance(error, QueueUnavailable))
            if not is_retriable or loop.time() >= until_s:
                return error
        await asyncio.sleep(RETRY_PAUSE_S)


def _results(reply: list[Sent] | PenstockError, count: int) -> SendResults:
    return [reply] * count if isinstance(reply, PenstockError) else list(reply)

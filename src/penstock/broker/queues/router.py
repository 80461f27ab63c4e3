"""Routes sends and acknowledgements of a queue to the partition leaders, with retries during failover.

Requests for partitions led by this broker run locally. Other requests are sent to the leader, and retried until a
deadline while the leader changes.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.queues.deduplication import DeduplicationIndex
from penstock.broker.queues.message_appender import MessageAppender, TakeSent
from penstock.broker.queues.messages import MessageAck, NewMessage, QueueUnavailable, Sent
from penstock.broker.queues.partition import QueuePartition, TakeErrors
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.peer_brokers import RETRIABLE_ERRORS, PeerBrokers
from penstock.broker.queues.pending_reply import Outcome
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
"""How long, in seconds, requests are retried while a partition has no leader."""
RETRY_PAUSE_S: Final = 0.1
_FIFO_RULES: Final = {AckType.DONE: AckType.DELETE}
_STANDARD_RULES: Final = {AckType.RENEW: AckType.CHANGE}
"""How acknowledgement types are replaced in standard queues (in FIFO queues: _FIFO_RULES), to behave as on AWS."""
T = TypeVar("T")
SendResults = list[Sent | PenstockError]
AckResults = list[PenstockError | None]
DoHere = Callable[[QueuePartition, Callable[[Any], None]], None]


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
        """Returns the broker id of a partition's leader. Raises NotLeaderOrFollower if there is none."""
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

    def send(self, queue: Queue, messages: Sequence[NewMessage]) -> SendResults | Awaitable[SendResults]:
        """Sends messages; returns the results in the order of the messages."""
        if not messages:
            return []
        if queue.settings.is_fifo:
            return self._send_fifo(queue, messages)
        led = self._partitions.by_id.get(queue.topic_id)
        if led:
            partition = led[sorted(led)[next(self._turns) % len(led)]] if len(led) > 1 else next(iter(led.values()))
            outcome: Outcome[SendResults] = Outcome()
            must_retry = False

            def take(reply: list[Sent] | PenstockError) -> None:
                nonlocal must_retry
                must_retry = isinstance(reply, RETRIABLE_ERRORS)
                outcome(_results(reply, len(messages)))

            self._appender.send(partition, messages, take)
            if not must_retry:
                return outcome.result()
        return self._send_anywhere(queue, messages)

    async def _send_anywhere(self, queue: Queue, messages: Sequence[NewMessage]) -> SendResults:
        """Sends the messages to any partition whose leader accepts them."""

        async def attempt() -> list[Sent]:
            count = self.count(queue)
            first = next(self._turns)
            numbers = [(first + number) % count for number in range(count)]
            led = [number for number in numbers if self._led_here(queue, number) is not None]
            for number in (*led, *(number for number in numbers if number not in led)):
                try:
                    return await self._send_once(queue, number, messages)
                except RETRIABLE_ERRORS as error:
                    last_error = error
            raise last_error

        return _results(await _retry(attempt), len(messages))

    def _send_fifo(self, queue: Queue, messages: Sequence[NewMessage]) -> SendResults | Awaitable[SendResults]:
        count = self.count(queue)
        numbers = [partition_of_key(message.key or b"", count) if count > 1 else 0 for message in messages]
        if len(set(numbers)) == 1:
            number = numbers[0]
            outcome: Outcome[SendResults] = Outcome()
            must_retry = self._led_here(queue, number) is None
            if not must_retry:

                def take(reply: list[Sent] | PenstockError) -> None:
                    nonlocal must_retry
                    must_retry = isinstance(reply, RETRIABLE_ERRORS)
                    outcome(_results(reply, len(messages)))

                self.send_here(queue, number, messages, take)
            if not must_retry:
                return outcome.result()
        return self._send_parts(queue, messages, numbers)

    async def _send_parts(self, queue: Queue, messages: Sequence[NewMessage], numbers: Sequence[int]) -> SendResults:
        """Sends to several partitions concurrently. A retry is safe, because the leader detects duplicates."""
        parts: dict[int, list[int]] = {}
        for at, number in enumerate(numbers):
            parts.setdefault(number, []).append(at)

        async def send(number: int, rows: list[int]) -> SendResults:
            wanted = [messages[at] for at in rows]
            reply = await _retry(lambda: self._send_once(queue, number, wanted), may_repeat=True)
            return _results(reply, len(rows))

        replies = await asyncio.gather(*(send(number, rows) for number, rows in parts.items()))
        found: dict[int, Sent | PenstockError] = {}
        for rows, reply in zip(parts.values(), replies, strict=True):
            found.update(zip(rows, reply, strict=True))
        return [found[at] for at in range(len(messages))]

    async def _send_once(self, queue: Queue, number: int, messages: Sequence[NewMessage]) -> list[Sent]:
        outcome: Outcome[list[Sent]] = Outcome()
        if self._led_here(queue, number) is not None:
            self.send_here(queue, number, messages, outcome)
        else:
            self._peer_brokers.send(self._remote_leader(queue, number), queue, number, messages, outcome)
        return await _await_outcome(outcome)

    def _remote_leader(self, queue: Queue, number: int) -> int:
        leader = self.leader(queue, number)
        if leader == self._peer_brokers.node_id:
            raise NotLeaderOrFollower(f"partition {number} of queue {queue.name!r} is being taken over")
        return leader

    def send_here(self, queue: Queue, number: int, messages: Sequence[NewMessage], then: TakeSent) -> None:
        """Sends messages to a partition led by this broker."""
        partition = self._led_here(queue, number)
        if partition is None or not partition.is_online:
            then(NotLeaderOrFollower(f"partition {number} of queue {queue.name!r} is led by another broker now"))
            return
        if not queue.settings.is_fifo:
            self._appender.send(partition, messages, then)
            return
        here = self._queue_partitions.find(queue.topic_id, number)
        if here is None:  # the delivery state, which has the last purge, is not loaded yet
            then(NotLeaderOrFollower(f"partition {number} of queue {queue.name!r} is being taken over"))
            return
        duplicates = self._duplicates_of(partition, queue)
        # Also before ids are loaded: those of messages that were purged need no memory.
        duplicates.forget_below(here.purges.purged_to(queue.name))

        def on_loaded(error: PenstockError | None) -> None:
            if error is not None:
                then(error)
            else:
                duplicates.forget_below(here.purges.purged_to(queue.name))
                self._appender.send(partition, messages, then, duplicates)

        duplicates.when_loaded(on_loaded)

    def _duplicates_of(self, partition: Partition, queue: Queue) -> DeduplicationIndex:
        tp, is_by_group = partition.tp, queue.settings.deduplication_scope == SCOPE_GROUP
        known = self._duplicates.get(tp)
        if known is not None and known[0] == partition.leader_epoch and known[1].is_by_group == is_by_group:
            return known[1]
        if known is not None:
            known[1].close()  # the next index would not know messages sent with this one
        fresh = DeduplicationIndex(partition, is_by_group=is_by_group, clock=self._clock, threads=self._threads)
        self._duplicates[tp] = (partition.leader_epoch, fresh)
        return fresh

    def apply(self) -> None:
        """Drops the deduplication indexes of partitions that this broker no longer leads."""
        for tp in [known for known in self._duplicates if partition_is_gone(self._partitions, known)]:
            self._duplicates.pop(tp)[1].close()

    # -- acknowledging

    def acknowledge(self, queue: Queue, items: Sequence[MessageAck]) -> AckResults | Awaitable[AckResults]:
        """Acknowledges messages; returns an error or None for each, in the order of the messages."""
        if not items:
            return []
        number = items[0].partition
        here = self._queue_partitions.find(queue.topic_id, number)
        if here is not None and all(item.partition == number for item in items):
            outcome: Outcome[AckResults] = Outcome()
            must_retry = False

            def take(reply: Sequence[PenstockError | None] | PenstockError) -> None:
                nonlocal must_retry
                must_retry = isinstance(reply, PenstockError)
                outcome(list(reply) if not isinstance(reply, PenstockError) else [reply] * len(items))

            here.acknowledge(self._command(queue, items, here.now_ms), take)
            if not must_retry:
                return outcome.result()
        return self._acknowledge_parts(queue, items)

    def _command(self, queue: Queue, items: Sequence[MessageAck], now_ms: int) -> Acknowledge:
        rules = _FIFO_RULES if queue.settings.is_fifo else _STANDARD_RULES
        return Acknowledge(
            queue.name,
            tuple(
                Acknowledgement(
                    item.offset,
                    item.offset,
                    item.holder,
                    rules.get(item.ack_type, item.ack_type),
                    now_ms + item.delay_ms,
                )
                for item in items
            ),
            self._settings_of(queue),
        )

    async def undo(self, queue: Queue, items: Sequence[MessageAck]) -> None:
        """Undoes deliveries at the brokers that lead the partitions; retries during failover."""
        await self._acknowledge_parts(queue, items)

    async def _acknowledge_parts(self, queue: Queue, items: Sequence[MessageAck]) -> AckResults:
        parts: dict[int, list[int]] = {}
        for at, item in enumerate(items):
            parts.setdefault(item.partition, []).append(at)

        async def acknowledge(number: int, rows: list[int]) -> AckResults:
            wanted = [items[at] for at in rows]
            tries = itertools.count()

            async def attempt() -> AckResults:
                is_again = next(tries) > 0
                reply = await self._acknowledge_once(queue, number, wanted)
                if is_again:
                    # The first attempt may have succeeded and its response been lost.
                    reply = [
                        None if isinstance(error, AlreadyFinished) and item.ack_type is AckType.DONE else error
                        for error, item in zip(reply, wanted, strict=True)
                    ]
                return reply

            reply = await _retry(attempt, may_repeat=True)
            return [reply] * len(rows) if isinstance(reply, PenstockError) else reply

        replies = await asyncio.gather(*(acknowledge(number, rows) for number, rows in parts.items()))
        found: dict[int, PenstockError | None] = {}
        for rows, reply in zip(parts.values(), replies, strict=True):
            found.update(zip(rows, reply, strict=True))
        return [found[at] for at in range(len(items))]

    async def _acknowledge_once(self, queue: Queue, number: int, items: Sequence[MessageAck]) -> AckResults:
        outcome: Outcome[Any] = Outcome()
        if self._led_here(queue, number) is not None:
            self.acknowledge_here(queue, items, outcome)
        else:
            self._peer_brokers.acknowledge(self._remote_leader(queue, number), queue, items, outcome)
        reply = list(await _await_outcome(outcome))
        for error in reply:
            if isinstance(error, RETRIABLE_ERRORS):
                raise error  # a partition's acknowledgements succeed or fail together
        return reply

    def acknowledge_here(self, queue: Queue, items: Sequence[MessageAck], then: TakeErrors) -> None:
        """Acknowledges messages on partitions led by this broker; if it does not lead all of them, only an error."""
        parts: dict[int, list[int]] = {}
        for at, item in enumerate(items):
            parts.setdefault(item.partition, []).append(at)
        found: dict[int, PenstockError | None] = {}
        here = {number: self._queue_partitions.find(queue.topic_id, number) for number in parts}

        def take(rows: list[int], reply: Sequence[PenstockError | None] | PenstockError) -> None:
            results = [reply] * len(rows) if isinstance(reply, PenstockError) else reply
            found.update(zip(rows, results, strict=True))
            if len(found) == len(items):
                then([found[at] for at in range(len(items))])

        for number, partition in here.items():
            if partition is None:
                then(NotLeaderOrFollower(f"{queue.name!r}-{number} is led by another broker, or is still loading"))
                return
        for number, partition in here.items():
            assert partition is not None
            rows = parts[number]
            partition.acknowledge(
                self._command(queue, [items[at] for at in rows], partition.now_ms), partial(take, rows)
            )

    # -- all partitions

    async def control_all(self, queue: Queue, request: QueueControlRequest, do_here: DoHere) -> dict[int, Counts]:
        """Runs a control action on all partitions; returns their counts by index. Raises QueueUnavailable."""
        done: dict[int, Counts] = {}

        async def attempt() -> dict[int, Counts]:
            if not queue.is_same(self._image().queues.get(queue.name)):
                raise UnknownTopicId(f"queue {queue.name!r} was deleted")
            missing = [number for number in range(self.count(queue)) if number not in done]
            nodes = set()
            for number in missing:
                here = self._queue_partitions.find(queue.topic_id, number)
                if here is not None:
                    outcome: Outcome[Counts] = Outcome()
                    do_here(here, outcome)
                    done[number] = await _await_outcome(outcome)
                else:
                    nodes.add(self._remote_leader(queue, number))
            for node in nodes:
                answer: Outcome[dict[int, Counts]] = Outcome()
                self._peer_brokers.control(node, request, answer)
                replied: dict[int, Counts] = await _await_outcome(answer)
                done.update(replied)
            if len(done) < self.count(queue):
                raise NotLeaderOrFollower(f"not all partitions of queue {queue.name!r} could be reached")
            return done

        reply = await _retry(attempt, may_repeat=True)
        if isinstance(reply, PenstockError):
            raise reply
        return reply


def partition_is_gone(partitions: Partitions, tp: TopicIdPartition) -> bool:
    return tp.partition not in partitions.by_id.get(tp.topic_id, ())


async def _await_outcome(outcome: Outcome[T]) -> T:
    found = outcome.result()
    return await found if isinstance(found, asyncio.Future) else found  # type: ignore[return-value]


async def _retry(attempt: Callable[[], Awaitable[T]], *, may_repeat: bool = False) -> T | PenstockError:
    """Retries until success or timeout, then returns the last error. `may_repeat`: also if it may have succeeded."""
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

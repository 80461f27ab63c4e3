"""Copies messages to other partitions for the queue state machines: dead letters and move tasks.

A copy is appended with the producer id, epoch and sequence that the state machine has persisted for it, and retried
until it succeeds: the destination's log drops duplicates. So there is exactly one copy, even if a broker fails.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, Final

from penstock.broker.peers import AskPeer
from penstock.broker.queues.message_reader import Header, Message, MessageLookup
from penstock.broker.queues.pending_reply import PendingReply
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.cluster.image import ClusterImage
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.time_slices import TimeSlices
from penstock.log.admission import must_decompress
from penstock.log.disk import ColdRead
from penstock.queues.commands import CopyMessage, NeedProducer, SetProducer
from penstock.queues.messages import (
    DELAY_MS,
    MESSAGE_ID,
    RECEIVE_COUNT,
    SENT_AT,
    SOURCE_ARN,
    message_id,
)
from penstock.records.build import build_row_steps
from penstock.replication.companions import CompanionRuntimes
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.schema import Buffer

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.2
REFUSED_MS: Final = 5000
"""Time, in milliseconds, for which a message stays hidden after its destination has refused the copy."""
TIMEOUT_MS: Final = 8000
_SUCCESS: Final = frozenset((ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
_UNKNOWN_TOPIC: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
_PERMANENT_ERRORS: Final = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *_UNKNOWN_TOPIC,
    )
)
"""Error codes after which a retry with the same sequence number cannot succeed."""

Validate = Callable[[Partition, Buffer], Awaitable[Buffer]]
"""A function that returns the batch to append to a partition in place of another. Raises PenstockError."""


class MessageMover:
    """Carries out what the queue state machines on this broker request: copies messages, reserves producer ids."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        runtimes: CompanionRuntimes,
        image: Callable[[], ClusterImage],
        producer_ids: ProducerIds,
        ask: AskPeer,
        clock: Clock,
        threads: Executor,
        slices: TimeSlices,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        validate: Validate,
    ) -> None:
        self.node_id: Final = node_id
        self.partitions: Final = partitions
        self.runtimes: Final = runtimes
        self.image = image
        self._producer_ids = producer_ids
        self.ask = ask
        self.clock: Final = clock
        self.threads: Final = threads
        self.slices: Final = slices
        self.spawn = spawn
        self.validate = validate

    def perform(self, tp: TopicIdPartition, effect: Any) -> None:
        runtime = self.runtimes.find(tp)
        if runtime is None:
            return  # the next leader requests it again
        if isinstance(effect, NeedProducer):
            self.spawn(self._reserve(runtime))
        elif isinstance(effect, CopyMessage):
            self.spawn(_MessageMove(self, tp, runtime, effect).run())

    async def _reserve(self, runtime: StateRuntime) -> None:
        """Reserves a producer id, which a partition needs to copy its messages to other partitions exactly once."""
        try:
            producer_id = await self._producer_ids.take()
        except PenstockError as error:  # the state machine requests it again
            logger.warning("no_producer_id partition=%s reason=%r", runtime.partition.name, str(error))
        else:
            runtime.submit(SetProducer(producer_id), _ignore)


class _MessageMove:
    """The copying of one message to another partition."""

    def __init__(self, owner: MessageMover, tp: TopicIdPartition, runtime: StateRuntime, effect: CopyMessage) -> None:
        self._owner = owner
        self._tp = tp
        self._runtime = runtime
        self._effect = effect

    @property
    def _is_wanted(self) -> bool:
        """Whether the requesting state machine still runs here; if not, the next leader copies the message."""
        return self._owner.runtimes.find(self._tp) is self._runtime

    async def run(self) -> None:
        while self._is_wanted:
            try:
                found = await self._read()
                code = ErrorCode.UNKNOWN_TOPIC_ID if found is None else await self._append(*found)
            except PenstockError as error:
                code = error.code
            if code in _SUCCESS:
                await self._submit_until_accepted(self._effect.done())
                return
            if code in _PERMANENT_ERRORS:
                logger.warning("message_not_moved partition=%s code=%s", self._runtime.partition.name, code.name)
                await self._submit_until_accepted(self._effect.failed(self._runtime.now_ms + REFUSED_MS))
                return
            await asyncio.sleep(RETRY_S)

    async def _submit_until_accepted(self, command: Any) -> None:
        """Submits the command to the state machine until it is accepted."""
        while self._is_wanted:
            reply: PendingReply[object] = PendingReply()
            self._runtime.submit(command, reply)
            try:
                await reply
            except PenstockError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _read(self) -> tuple[Message, Iterator[Header]] | None:
        """Returns the message and its headers; None if the message was removed from the log and cannot be moved."""
        owner = self._owner
        partition = owner.partitions.by_id.get(self._tp.topic_id, {}).get(self._tp.partition)
        if partition is None:
            return None
        lookup = MessageLookup(partition)
        while True:
            try:
                # Not only up to the last stable offset: share groups may read uncommitted messages and reject them.
                batch = lookup.batch(self._effect.offset, stable=False)
                message = None if batch is None else batch.message_at(self._effect.offset, headers_max=0)
                if batch is None or message is None:
                    return None
                return message, batch.headers_at(self._effect.offset)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(owner.threads, cold.warm)

    async def _append(self, message: Message, headers: Iterator[Header]) -> ErrorCode:
        """Appends the copy to the destination partition; returns the error code, which may be NONE."""
        owner, (topic_id, number) = self._owner, self._effect.destination
        topic = owner.image().topics.get(topic_id)
        if topic is None or number not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_ID
        now_ms = owner.clock.now_ms()
        steps = build_row_steps(
            (message.key, message.value, self._headers(message, headers)),
            now_ms,
            producer_id=self._effect.producer.producer_id,
            producer_epoch=self._effect.producer.epoch,
            base_sequence=self._effect.sequence,
        )
        batch = await owner.slices.run(steps)
        here = owner.partitions.by_id.get(topic_id, {}).get(number)
        if here is not None:
            return await self._append_here(here, batch, now_ms)
        leader = topic.partitions[number].leader
        if leader not in owner.image().brokers or leader == owner.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return await self._append_there(leader, batch)

    async def _append_here(self, partition: Partition, batch: bytearray, now_ms: int) -> ErrorCode:
        if must_decompress(batch, partition.log.settings):
            batch = bytearray(await self._owner.validate(partition, batch))
        partition.check_in_sync()
        end = partition.append(batch, now_ms).last_offset + 1
        if not partition.has_committed(end):
            committed: PendingReply[None] = PendingReply()
            partition.when_committed(end, lambda: committed(None))
            await committed
        return ErrorCode.NONE if partition.has_committed(end) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def _append_there(self, leader: int, batch: bytearray) -> ErrorCode:
        topic_id, number = self._effect.destination
        request = ProduceRequest(
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    topic_id=topic_id, partition_data=[PartitionProduceData(index=number, records=batch)]
                )
            ],
        )
        reply: PendingReply[ProduceResponse] = PendingReply()
        self._owner.ask(leader, request, reply)
        try:
            response = await reply
        except PenstockError:
            return ErrorCode.REQUEST_TIMED_OUT
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        # The peer's image may be stale; our own decides whether the topic exists. Giving up after an attempt without
        # a response could leave both the copy and the message.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _UNKNOWN_TOPIC else code

    def _headers(self, message: Message, headers: Iterator[Header]) -> Iterator[Header]:
        """Yields the headers of the copy: the message's own headers, then headers that tell where it came from."""
        tp, effect, image = self._tp, self._effect, self._owner.image()
        queue = image.queues.get(effect.group)
        if queue is None:
            yield from self._headers_of_share_group(message, headers)
            return
        replaced = {MESSAGE_ID, SENT_AT, SOURCE_ARN, RECEIVE_COUNT, DELAY_MS}
        own: dict[str, bytes | None] = {}
        for name, value in headers:
            if name in replaced:
                own[name] = value
            else:
                yield name, value
        redrive = queue.settings.redrive
        target = image.queues.get(redrive.queue) if redrive is not None else None
        is_dead_letter = target is not None and target.topic_id == effect.destination.topic_id
        yield MESSAGE_ID, own.get(MESSAGE_ID) or message_id(*tp, message.offset).encode()
        yield SENT_AT, own.get(SENT_AT) or str(message.timestamp_ms).encode()
        if is_dead_letter:
            yield SOURCE_ARN, queue.arn.encode()
            before = own.get(RECEIVE_COUNT) or b""  # of the queue that it was a dead letter of before
            yield RECEIVE_COUNT, str(effect.count + (int(before) if before.isdigit() else 0)).encode()

    def _headers_of_share_group(self, message: Message, headers: Iterator[Header]) -> Iterator[Header]:
        """Yields `headers`, then Kafka's dead-letter headers (KIP-1191), which replace headers of the same name."""
        topic = self._owner.image().topics.get(self._tp.topic_id)
        added = {
            "__dlq.errors.topic": topic.name if topic is not None else "",
            "__dlq.errors.partition": str(self._tp.partition),
            "__dlq.errors.offset": str(message.offset),
            "__dlq.errors.group": self._effect.group,
            "__dlq.errors.delivery.count": str(self._effect.count),
        }
        yield from ((name, value) for name, value in headers if name not in added)
        yield from ((name, text.encode()) for name, text in added.items())


def _ignore(reply: object) -> None:
    """Ignores the reply: the state machine repeats its request if necessary."""

"""Carrying messages to other partitions, as their machines want it: dead letters, and what move tasks take away.

A copy is appended under the very producer, epoch and sequence that the machine has persisted for it, as often as it
takes: the destination's log drops what it has already. So it is there once, whoever dies meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, Final

from penstock.broker.peers import AskPeer
from penstock.broker.queues.message_reader import Back, Header, Message
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.cluster.image import ClusterImage, Place
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.time_slices import TimeSlices
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

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.2
REFUSED_MS: Final = 5000
"""How long a message is kept back that its destination would not take."""
TIMEOUT_MS: Final = 8000
_DONE: Final = frozenset((ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
_NOT_KNOWN: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
_NEVER: Final = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *_NOT_KNOWN,
    )
)
"""After these, trying again under the same number leads nowhere."""


class Carrier:
    """Performs the effects of all machines that decide here."""

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

    def perform(self, place: Place, effect: Any) -> None:
        runtime = self.runtimes.find(place)
        if runtime is None:
            return  # whoever takes over wants it again
        if isinstance(effect, NeedProducer):
            self.spawn(self._reserve(runtime))
        elif isinstance(effect, CopyMessage):
            self.spawn(_Carrying(self, place, runtime, effect).run())

    async def _reserve(self, runtime: StateRuntime) -> None:
        """An id of its own for a partition that moves messages."""
        try:
            producer_id = await self._producer_ids.take()
        except PenstockError as error:  # it is wanted again
            logger.warning("no_producer_id partition=%s reason=%r", runtime.partition.name, str(error))
        else:
            runtime.submit(SetProducer(producer_id), _ignore)


class _Carrying:
    """One message on its way."""

    def __init__(self, owner: Carrier, place: Place, runtime: StateRuntime, effect: CopyMessage) -> None:
        self._owner = owner
        self._place = place
        self._runtime = runtime
        self._effect = effect

    @property
    def _is_wanted(self) -> bool:
        """Whether the machine that wants it decides here still: if not, the next one begins again."""
        return self._owner.runtimes.find(self._place) is self._runtime

    async def run(self) -> None:
        while self._is_wanted:
            try:
                found = await self._read()
                code = ErrorCode.UNKNOWN_TOPIC_ID if found is None else await self._append(*found)
            except PenstockError as error:
                code = error.code
            if code in _DONE:
                await self._tell(self._effect.done())
                return
            if code in _NEVER:
                logger.warning("message_not_moved partition=%s code=%s", self._runtime.partition.name, code.name)
                await self._tell(self._effect.failed(self._runtime.now_ms + REFUSED_MS))
                return
            await asyncio.sleep(RETRY_S)

    async def _tell(self, command: Any) -> None:
        """Tell the machine, until it has heard."""
        while self._is_wanted:
            heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self._runtime.submit(command, lambda reply, heard=heard: _resolve(heard, reply))  # type: ignore[misc]
            if not isinstance(await heard, PenstockError):
                return
            await asyncio.sleep(RETRY_S)

    async def _read(self) -> tuple[Message, Iterator[Header]] | None:
        """The message and its headers, if it is there still; if not, there is nothing to move."""
        owner = self._owner
        partition = owner.partitions.by_id.get(self._place.topic_id, {}).get(self._place.number)
        if partition is None:
            return None
        back = Back(partition)
        while True:
            try:
                # Not only what is stable: a share group may be given messages of open transactions, and reject them.
                batch = back.batch(self._effect.offset, stable=False)
                message = None if batch is None else batch.message_at(self._effect.offset, headers_max=0)
                if batch is None or message is None:
                    return None
                return message, batch.headers_at(self._effect.offset)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(owner.threads, cold.warm)

    async def _append(self, message: Message, headers: Iterator[Header]) -> ErrorCode:
        """Append the copy where it belongs; what came of it."""
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

    @staticmethod
    async def _append_here(partition: Partition, batch: bytearray, now_ms: int) -> ErrorCode:
        partition.check_in_sync()
        end = partition.append(batch, now_ms).last_offset + 1
        if not partition.has_committed(end):
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            partition.when_committed(end, lambda: _resolve(settled, None))
            await settled
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
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._owner.ask(leader, request, lambda answer: _resolve(answered, answer))
        answer = await answered
        if not isinstance(answer, ProduceResponse):
            return ErrorCode.REQUEST_TIMED_OUT
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        # It may only be behind: whether the topic is there is for our own image to say. To give up after an attempt
        # that was not answered would leave the copy and the message.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_KNOWN else code

    def _headers(self, message: Message, headers: Iterator[Header]) -> Iterator[Header]:
        """What the message says of itself, and where it has been. All of its headers are copied, one by one."""
        place, effect, image = self._place, self._effect, self._owner.image()
        queue = image.queues.get(effect.group)
        if queue is None:
            yield from self._headers_of_share_group(message, headers)
            return
        gone = {MESSAGE_ID, SENT_AT, SOURCE_ARN, RECEIVE_COUNT, DELAY_MS}
        own: dict[str, bytes | None] = {}
        for name, value in headers:
            if name in gone:
                own[name] = value
            else:
                yield name, value
        redrive = queue.settings.redrive
        target = image.queues.get(redrive.queue) if redrive is not None else None
        is_dead_letter = target is not None and target.topic_id == effect.destination.topic_id
        yield MESSAGE_ID, own.get(MESSAGE_ID) or message_id(*place, message.offset).encode()
        yield SENT_AT, own.get(SENT_AT) or str(message.timestamp_ms).encode()
        if is_dead_letter:
            yield SOURCE_ARN, queue.arn.encode()
            yield RECEIVE_COUNT, str(effect.count).encode()

    def _headers_of_share_group(self, message: Message, headers: Iterator[Header]) -> Iterator[Header]:
        """Dead letters of a share group that is no queue's say in Kafka's words where they have been (KIP-1191)."""
        topic = self._owner.image().topics.get(self._place.topic_id)
        added = {
            "__dlq.errors.topic": topic.name if topic is not None else "",
            "__dlq.errors.partition": str(self._place.number),
            "__dlq.errors.offset": str(message.offset),
            "__dlq.errors.group": self._effect.group,
            "__dlq.errors.delivery.count": str(self._effect.count),
        }
        yield from ((name, value) for name, value in headers if name not in added)
        yield from ((name, text.encode()) for name, text in added.items())


def _resolve(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _ignore(reply: object) -> None:
    """It is asked for again, if need be."""

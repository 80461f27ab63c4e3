"""Produce: append batches, answer when they are as safe as the producer asked."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.transactions.add_partitions import Key, find_joining, join
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTimestamp, PenstockError
from penstock.log.admission import RejectedRecords, TooLargeHere, admit, must_open
from penstock.replication.errors import InternalTopicWrite
from penstock.replication.partition import Partition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.schema import Buffer

ALL: Final = -1
"""Acknowledge when all replicas that are in sync have it."""
OPEN_INLINE_BYTES: Final = 64 << 10
"""Batches with fewer bytes, decompressed, are opened on the event loop: a hop to a thread would cost more."""
Opened = dict[Key, Buffer | PenstockError]
_COMES_AGAIN: Final = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
)
"""After these a producer sends the same batch again."""


@handles(ApiKey.PRODUCE)
def produce(
    request: ProduceRequest, call: Call, broker: Broker
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if request.acks not in (-1, 0, 1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; expected -1, 0 or 1")
    name = request.transactional_id
    if name is not None and (broker.turns.is_taken(name) or find_joining(request, broker)):
        _join_then_append(request, call, broker, name)
        return None
    if broker.partitions.open_batches:
        closed = _batches_to_open(request, broker, {})
        if closed:
            # Copied here and not in the coroutine: before that runs, another connection may read into the buffer.
            return _open_then_append(request, call, broker, closed, _copies(request))
    return _append_all(request, call, broker, {})


def _append_all(
    request: ProduceRequest, call: Call, broker: Broker, opened: Opened, may_begin: bool = False
) -> ProduceResponse | None:
    now_ms = broker.clock.now_ms()
    uncommitted: list[tuple[Partition, int, PartitionProduceResponse]] = []
    topics = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            records: Buffer | PenstockError | None = data.records
            if opened:
                records = opened.get((topic.name, topic.topic_id, data.index), records)
            try:
                partition = broker.partition(topic.name, topic.topic_id, data.index)
                if partition.is_internal:
                    raise InternalTopicWrite(partition.name)
                if isinstance(records, PenstockError):
                    raise records
                if request.acks == ALL:
                    partition.check_in_sync()
                batch = _writable(records)
                try:
                    appended = partition.append(batch, now_ms, may_begin)
                except InvalidTimestamp:
                    # Unless our own clock was set while we ran: a batch refused for good makes librdkafka begin a new
                    # epoch on all partitions, where what it has under way elsewhere is repeated.
                    appended = partition.append(batch, broker.clock.steady_ms(), may_begin)
            except PenstockError as error:
                if error.code in _COMES_AGAIN:
                    _note_refused(topic, data.index, records, broker, error)
                answers.append(_refusal(data.index, error))
                continue
            answer = PartitionProduceResponse(
                index=data.index,
                error_code=0,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.append_time_ms,
                log_start_offset=partition.log.start_offset,
            )
            answers.append(answer)
            end_offset = appended.last_offset + 1
            if (partition.high_watermark if request.acks == ALL else partition.durable_end) < end_offset:
                uncommitted.append((partition, end_offset, answer))
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    response = ProduceResponse(responses=topics)
    if request.acks == 0:
        # The only way to tell such a producer that something went wrong (Kafka does the same).
        call.answer(None, hang_up=any(answer.error_code for topic in topics for answer in topic.partition_responses))
        return None
    if not uncommitted:
        return response
    _Parked(response, uncommitted, call, broker, request)
    return None


def _note_refused(
    topic: TopicProduceData,
    index: int,
    records: Buffer | PenstockError | None,
    broker: Broker,
    error: PenstockError,
) -> None:
    """What comes after it on this connection may find the partition ready, and must not be taken in its place."""
    known = broker.image.by_name.get(topic.name) if topic.name else broker.image.topics.get(topic.topic_id)
    partition = broker.partitions.replicas.get(known.topic_id, {}).get(index) if known is not None else None
    if (
        partition is not None
        and partition.is_online
        and records is not None
        and not isinstance(records, PenstockError)
    ):
        partition.log.refuse(records, error)


def _writable(records: Buffer | None) -> bytearray | memoryview:
    """The offsets are set in place, in the frame's own buffer."""
    return bytearray(records or b"") if records is None or isinstance(records, bytes) else records


def _refusal(index: int, error: PenstockError) -> PartitionProduceResponse:
    rows = error.rows if isinstance(error, RejectedRecords) else ()
    reasons = error.reasons if isinstance(error, RejectedRecords) else {}
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=row, batch_index_error_message=reasons.get(row)) for row in rows
        ],
        error_message=error.message,
    )


def _refuse_all(request: ProduceRequest, code: ErrorCode, message: str) -> ProduceResponse:
    def refuse(topic: TopicProduceData) -> TopicProduceResponse:
        answers = [
            PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, error_message=message)
            for data in topic.partition_data
        ]
        return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)

    return ProduceResponse(responses=[refuse(topic) for topic in request.topic_data])


class _Parked:
    """A request whose batches are appended and not yet as safe as the producer wants them."""

    def __init__(
        self,
        response: ProduceResponse,
        uncommitted: list[tuple[Partition, int, PartitionProduceResponse]],
        call: Call,
        broker: Broker,
        request: ProduceRequest,
    ) -> None:
        self._response = response
        self._wants_all = request.acks == ALL
        self._uncommitted = uncommitted
        self._waiting = len(uncommitted)
        self._call = call
        self._cancel = broker.timer(max(0, request.timeout_ms) / 1000, self._finish)
        call.on_gone = self._cancel
        for partition, end_offset, _ in uncommitted:
            when_safe = partition.when_committed if self._wants_all else partition.when_durable
            when_safe(end_offset, self._one_done)

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._cancel()
            self._finish()

    def _finish(self) -> None:
        """All are safe, or time is up: those that are not are answered with an error."""
        if self._call.is_answered:
            return
        failed = {}
        for partition, end_offset, answer in self._uncommitted:
            if not partition.is_online:
                failed[id(answer)] = ErrorCode.KAFKA_STORAGE_ERROR
            elif not partition.is_leader:
                failed[id(answer)] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif (partition.high_watermark if self._wants_all else partition.durable_end) < end_offset:
                failed[id(answer)] = ErrorCode.REQUEST_TIMED_OUT
            elif self._wants_all and not partition.is_safe:
                failed[id(answer)] = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if failed:
            self._response = ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partition_responses=[
                            PartitionProduceResponse(
                                index=answer.index, error_code=failed[id(answer)], base_offset=-1
                            )
                            if id(answer) in failed
                            else answer
                            for answer in topic.partition_responses
                        ],
                    )
                    for topic in self._response.responses
                ]
            )
        self._call.answer(self._response)


# -- batches that must be opened


def _batches_to_open(request: ProduceRequest, broker: Broker, opened: Opened) -> list[tuple[Partition, Key]]:
    found = []
    for topic in request.topic_data:
        table = broker.partitions.by_name.get(topic.name) or broker.partitions.by_id.get(topic.topic_id) or {}
        for data in topic.partition_data:
            partition = table.get(data.index)
            key = topic.name, topic.topic_id, data.index
            records = opened.get(key, data.records)
            if partition is None or not partition.is_online or records is None or isinstance(records, PenstockError):
                continue
            if partition.is_internal:
                continue  # refused later, closed as it is
            if must_open(records, partition.log.settings):
                found.append((partition, key))
    return found


def _copies(request: ProduceRequest) -> Opened:
    return {
        (topic.name, topic.topic_id, data.index): bytearray(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None
    }


async def _open_then_append(
    request: ProduceRequest,
    call: Call,
    broker: Broker,
    closed: list[tuple[Partition, Key]],
    opened: Opened,
    may_begin: bool = False,
) -> ProduceResponse | None:
    """Opens what must be opened, on a thread if it is large; `opened` has a copy of every batch, or its error."""
    loop = asyncio.get_running_loop()
    for partition, key in closed:
        batch = opened[key]
        assert not isinstance(batch, PenstockError)
        try:
            visibility = partition.visibility
            may_delay = visibility is not None and visibility.may_delay
            work = partial(admit, batch, partition.log.settings, broker.clock.now_ms(), may_delay)
            try:
                opened[key] = work(body_max=OPEN_INLINE_BYTES)
            except TooLargeHere:
                opened[key] = await loop.run_in_executor(broker.threads, work)
        except PenstockError as error:
            opened[key] = error
    return _append_all(request, call, broker, opened, may_begin)


# -- batches that begin a transaction


def _join_then_append(request: ProduceRequest, call: Call, broker: Broker, transactional_id: str) -> None:
    """Ask the coordinator first. What it allows is appended at once, before anything else can end the transaction."""
    opened = _copies(request)  # until the answer is there, another connection may read into the buffer

    def start() -> None:
        joining = find_joining(request, broker, opened)
        if joining:
            join(request, call.version, joining, broker, on_joined)
        else:
            on_joined({})

    def on_joined(refused: dict[Key, PenstockError]) -> None:
        opened.update(refused)
        closed = _batches_to_open(request, broker, opened) if broker.partitions.open_batches else []
        if closed:
            broker.run(open_then_append(closed), answer)
            return
        try:
            answer(_append_all(request, call, broker, opened, may_begin=True))
        finally:
            broker.turns.give(transactional_id)

    async def open_then_append(closed: list[tuple[Partition, Key]]) -> ProduceResponse | None:
        try:
            return await _open_then_append(request, call, broker, closed, opened, may_begin=True)
        finally:
            broker.turns.give(transactional_id)

    def answer(response: ProduceResponse | None) -> None:
        if response is not None:
            call.answer(response)

    broker.turns.take(transactional_id, start)

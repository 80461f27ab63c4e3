"""Produce: appends record batches; answers when they are durable or replicated as `acks` requires."""

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.transactions.add_partitions import Key, find_first_batches, join
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTimestamp, PenstockError
from penstock.log.admission import RejectedRecords, TooLargeForEventLoop, admit, must_decompress
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
"""Value of `acks` for acks=all: the response is sent when all in-sync replicas have the records."""
DECOMPRESS_INLINE_BYTES_MAX: Final = 64 << 10
"""Maximum decompressed size, in bytes, of batches validated on the event loop: using a thread would cost more."""
BatchCopies = dict[Key, Buffer | PenstockError]
_RETRIED_BY_PRODUCER: Final = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
)
"""Error codes after which a producer sends the same batch again."""


@handles(ApiKey.PRODUCE)
def produce(
    request: ProduceRequest, call: Call, broker: Broker
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if request.acks not in (-1, 0, 1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; expected -1, 0 or 1")
    name = request.transactional_id
    if name is not None and (broker.produce_order.is_busy(name) or find_first_batches(request, broker)):
        _join_then_append(request, call, broker, name)
        return None
    if broker.partitions.open_batches:
        to_decompress = _batches_to_decompress(request, broker, {})
        if to_decompress:
            # Copied here, not in the coroutine: before it runs, another connection may reuse the buffer.
            return _decompress_then_append(request, call, broker, to_decompress, _copy_batches(request))
    return _append_all(request, call, broker, {})


def _append_all(
    request: ProduceRequest, call: Call, broker: Broker, copies: BatchCopies, may_begin: bool = False
) -> ProduceResponse | None:
    now_ms = broker.clock.now_ms()
    uncommitted: list[tuple[Partition, int, PartitionProduceResponse]] = []
    topics = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            records: Buffer | PenstockError | None = data.records
            if copies:
                records = copies.get((topic.name, topic.topic_id, data.index), records)
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
                    # Our clock may have been set: a fatal error makes librdkafka start a new epoch on all partitions,
                    # which duplicates batches in flight on other partitions.
                    appended = partition.append(batch, broker.clock.steady_ms(), may_begin)
            except PenstockError as error:
                if error.code in _RETRIED_BY_PRODUCER:
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
        # The only way to report an error to such a producer (as in Kafka).
        call.answer(None, hang_up=any(answer.error_code for topic in topics for answer in topic.partition_responses))
        return None
    if not uncommitted:
        return response
    _DelayedProduce(response, uncommitted, call, broker, request)
    return None


def _note_refused(
    topic: TopicProduceData,
    index: int,
    records: Buffer | PenstockError | None,
    broker: Broker,
    error: PenstockError,
) -> None:
    """Records that a batch was refused: the producer's later batches must not be accepted before it is sent again."""
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
    """Returns the batch as a mutable buffer: offsets are set in place, in the frame's buffer if possible."""
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


class _DelayedProduce:
    """A Produce request whose batches are appended, but not yet durable or replicated as `acks` requires."""

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
        self._cancel_timer = broker.timer(max(0, request.timeout_ms) / 1000, self._finish)
        call.on_disconnect = self._cancel_timer
        for partition, end_offset, _ in uncommitted:
            when_acknowledged = partition.when_committed if self._wants_all else partition.when_durable
            when_acknowledged(end_offset, self._one_done)

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._cancel_timer()
            self._finish()

    def _finish(self) -> None:
        """Sends the response, with an error for batches that are not durable or replicated as `acks` requires."""
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


# -- batches that must be decompressed


def _batches_to_decompress(
    request: ProduceRequest, broker: Broker, copies: BatchCopies
) -> list[tuple[Partition, Key]]:
    found = []
    for topic in request.topic_data:
        table = broker.partitions.by_name.get(topic.name) or broker.partitions.by_id.get(topic.topic_id) or {}
        for data in topic.partition_data:
            partition = table.get(data.index)
            key = topic.name, topic.topic_id, data.index
            records = copies.get(key, data.records)
            if partition is None or not partition.is_online or records is None or isinstance(records, PenstockError):
                continue
            if partition.is_internal:
                continue  # refused later
            if must_decompress(records, partition.log.settings):
                found.append((partition, key))
    return found


def _copy_batches(request: ProduceRequest) -> BatchCopies:
    return {
        (topic.name, topic.topic_id, data.index): bytearray(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None
    }


async def _decompress_then_append(
    request: ProduceRequest,
    call: Call,
    broker: Broker,
    to_decompress: list[tuple[Partition, Key]],
    copies: BatchCopies,
    may_begin: bool = False,
) -> ProduceResponse | None:
    """Validates compressed batches (on a thread if large), then appends all batches. `copies` has a copy of each
    batch, or its error."""
    loop = asyncio.get_running_loop()
    for partition, key in to_decompress:
        batch = copies[key]
        assert not isinstance(batch, PenstockError)
        try:
            visibility = partition.visibility
            may_delay = visibility is not None and visibility.may_delay
            work = partial(admit, batch, partition.log.settings, broker.clock.now_ms(), may_delay)
            try:
                copies[key] = work(body_max=DECOMPRESS_INLINE_BYTES_MAX)
            except TooLargeForEventLoop:
                copies[key] = await loop.run_in_executor(broker.threads, work)
        except PenstockError as error:
            copies[key] = error
    return _append_all(request, call, broker, copies, may_begin)


# -- batches that begin a transaction


def _join_then_append(request: ProduceRequest, call: Call, broker: Broker, transactional_id: str) -> None:
    """Adds the partitions to the transaction at its coordinator, then appends at once the batches that it
    accepted."""
    copies = _copy_batches(request)  # until the reply, another connection may reuse the buffer

    def start() -> None:
        first_batches = find_first_batches(request, broker, copies)
        if first_batches:
            join(request, call.version, first_batches, broker, on_joined)
        else:
            on_joined({})

    def on_joined(refused: dict[Key, PenstockError]) -> None:
        copies.update(refused)
        to_decompress = _batches_to_decompress(request, broker, copies) if broker.partitions.open_batches else []
        if to_decompress:
            broker.run(decompress_then_append(to_decompress), answer)
            return
        try:
            answer(_append_all(request, call, broker, copies, may_begin=True))
        finally:
            broker.produce_order.finish(transactional_id)

    async def decompress_then_append(to_decompress: list[tuple[Partition, Key]]) -> ProduceResponse | None:
        try:
            return await _decompress_then_append(request, call, broker, to_decompress, copies, may_begin=True)
        finally:
            broker.produce_order.finish(transactional_id)

    def answer(response: ProduceResponse | None) -> None:
        if response is not None:
            call.answer(response)

    broker.produce_order.enqueue(transactional_id, start)

"""Appends produced batches, and answers when they are durable or replicated as `acks` requires."""

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.produce.produced_batch import ProducedBatch, build_response
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTimestamp, PenstockError
from penstock.wire.messages.produce import PartitionProduceResponse, ProduceRequest

ALL: Final = -1
"""Value of `acks` for acks=all: the response is sent when all in-sync replicas have the records."""
_RETRIED_BY_PRODUCER: Final = frozenset(
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
)
"""Error codes after which a producer sends the same batch again; its later batches are refused until then."""


def append(request: ProduceRequest, batches: list[ProducedBatch], call: Call, broker: Broker) -> None:
    """Appends all batches that no earlier stage has refused, and answers the request, now or later."""
    now_ms = broker.clock.now_ms()
    needs_all = request.acks == ALL
    uncommitted = []
    for batch in batches:
        if batch.result is not None:
            continue
        partition, records = batch.partition, batch.records
        if isinstance(records, bytes):
            records = bytearray(records)  # offsets are set in place, in the receive buffer if possible
        try:
            if needs_all:
                partition.check_in_sync()
            try:
                appended = partition.append(records, now_ms, batch.may_begin)
            except InvalidTimestamp:
                # Our clock may have been set: a fatal error makes librdkafka start a new epoch on all partitions,
                # which duplicates batches in flight on other partitions.
                appended = partition.append(records, broker.clock.steady_ms(), batch.may_begin)
        except PenstockError as error:
            batch.refuse(error)
            if error.code in _RETRIED_BY_PRODUCER and partition.is_online:
                partition.log.refuse(records, error)  # the producer's later batches must wait for the retry
            continue
        batch.end_offset = appended.last_offset + 1
        batch.result = PartitionProduceResponse(
            index=batch.index,
            error_code=0,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=partition.log.start_offset,
        )
        if (partition.high_watermark if needs_all else partition.durable_end) < batch.end_offset:
            uncommitted.append(batch)
    if request.acks == 0:
        # The only way to report an error to such a producer (as in Kafka).
        call.answer(None, hang_up=not all(batch.end_offset for batch in batches))
    elif uncommitted:
        _answer_when_acknowledged(request, batches, uncommitted, call, broker)
    else:
        call.answer(build_response(request, batches))


def _answer_when_acknowledged(
    request: ProduceRequest,
    batches: list[ProducedBatch],
    uncommitted: list[ProducedBatch],
    call: Call,
    broker: Broker,
) -> None:
    """Answers when the batches `uncommitted` are durable or replicated as `acks` requires, or after the timeout."""
    needs_all = request.acks == ALL
    waiting = len(uncommitted)

    def on_acknowledged() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            cancel_timer()
            answer()

    def answer() -> None:
        if call.is_answered:
            return
        for batch in uncommitted:
            code = _acknowledgement_error(batch, needs_all)
            if code:
                batch.result = PartitionProduceResponse(index=batch.index, error_code=code, base_offset=-1)
        call.answer(build_response(request, batches))

    cancel_timer = call.on_disconnect = broker.timer(max(0, request.timeout_ms) / 1000, answer)
    for batch in uncommitted:
        when_acknowledged = batch.partition.when_committed if needs_all else batch.partition.when_durable
        when_acknowledged(batch.end_offset, on_acknowledged)


def _acknowledgement_error(batch: ProducedBatch, needs_all: bool) -> ErrorCode:
    partition = batch.partition
    if not partition.is_online:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if (partition.high_watermark if needs_all else partition.durable_end) < batch.end_offset:
        return ErrorCode.REQUEST_TIMED_OUT
    if needs_all and not partition.is_safe:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE

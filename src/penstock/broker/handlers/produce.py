"""Produce: appends record batches; answers when they are durable or replicated as `acks` requires."""

from collections.abc import Coroutine
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.produce.append import append
from penstock.broker.produce.produced_batch import ProducedBatch, copy_records, find_partitions
from penstock.broker.produce.transaction import find_first_batches, verify_first_batches
from penstock.broker.produce.validation import find_compressed, validate, validate_now
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.produce import ProduceRequest


class InvalidRequiredAcks(PenstockError):
    code = ErrorCode.INVALID_REQUIRED_ACKS


@handles(ApiKey.PRODUCE)
def produce(request: ProduceRequest, call: Call, broker: Broker) -> Coroutine[Any, Any, None] | None:
    batches = find_partitions(request, call, broker)
    if request.acks not in (-1, 0, 1):
        for batch in batches:
            batch.refuse(InvalidRequiredAcks(f"acks={request.acks}; expected -1, 0 or 1"))
    name = request.transactional_id
    if name is not None and (broker.produce_order.is_busy(name) or find_first_batches(batches)):
        _append_in_transaction(name, request, batches, call, broker)
        return None
    waiting = validate_now(find_compressed(batches, broker), broker)
    if waiting:
        copy_records(batches)  # not in the coroutine: another connection may reuse the buffer before it runs
        return _validate_and_append(waiting, request, batches, call, broker)
    append(request, batches, call, broker)
    return None


async def _validate_and_append(
    waiting: list[ProducedBatch], request: ProduceRequest, batches: list[ProducedBatch], call: Call, broker: Broker
) -> None:
    await validate(waiting, broker)
    append(request, batches, call, broker)


def _append_in_transaction(
    transactional_id: str, request: ProduceRequest, batches: list[ProducedBatch], call: Call, broker: Broker
) -> None:
    """Waits for earlier requests of the transactional id, then validates, joins the transaction, and appends.

    Appends at once after joining: an append after the transaction's end would begin a transaction that never ends.
    """
    copy_records(batches)

    def start() -> None:
        waiting = validate_now(find_compressed(batches, broker), broker)
        if waiting:
            broker.run(validate_and_join(waiting), lambda _: None)
        else:
            join()

    async def validate_and_join(waiting: list[ProducedBatch]) -> None:
        is_done = False
        try:
            await validate(waiting, broker)
            is_done = True
        finally:
            if not is_done:
                broker.produce_order.finish(transactional_id)
        join()

    def join() -> None:
        verify_first_batches(transactional_id, call.version, batches, broker, on_joined)

    def on_joined() -> None:
        try:
            append(request, batches, call, broker)
        finally:
            broker.produce_order.finish(transactional_id)

    broker.produce_order.enqueue(transactional_id, start)

"""AddOffsetsToTxn: adds a consumer group's partition of __consumer_offsets to a transaction."""

from collections.abc import Awaitable
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import command
from penstock.broker.internal_topics import create_internal_topic
from penstock.broker.permissions import READ_GROUP, WRITE_IN_TRANSACTION
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.transactions.commands import AddOffsets
from penstock.wire.keys import ApiKey
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@handles(ApiKey.ADD_OFFSETS_TO_TXN, WRITE_IN_TRANSACTION, READ_GROUP)
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, call: Call, broker: Broker
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse | None] | None:
    if broker.groups.topic not in broker.image.by_name:
        # Some clients send FindCoordinator, which creates the topic, only after this.
        return _create_then_add(request, call, broker)
    return _add(request, call, broker)


async def _create_then_add(
    request: AddOffsetsToTxnRequest, call: Call, broker: Broker
) -> AddOffsetsToTxnResponse | None:
    try:
        await create_internal_topic(broker.groups.topic, broker)
    except PenstockError:
        return _error_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _add(request, call, broker)


def _add(request: AddOffsetsToTxnRequest, call: Call, broker: Broker) -> AddOffsetsToTxnResponse | None:
    partition = broker.groups.partition_of(request.group_id)
    if partition is None:
        return _error_response(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answer(reply: Any) -> None:
        call.answer(_error_response(reply.code) if isinstance(reply, PenstockError) else reply)

    wanted = AddOffsets(request=command(request, call), offsets_partition=partition)
    broker.transactions.submit(request.transactional_id, wanted, answer)
    return None


def _error_response(code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)

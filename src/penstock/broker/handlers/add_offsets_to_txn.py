"""AddOffsetsToTxn: the offsets of a group will be committed with a transaction."""

from typing import Any

from penstock.broker.asking import command
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.transactions.commands import AddOffsets
from penstock.wire.keys import ApiKey
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@handles(ApiKey.ADD_OFFSETS_TO_TXN)
def add_offsets_to_txn(request: AddOffsetsToTxnRequest, call: Call, broker: Broker) -> AddOffsetsToTxnResponse | None:
    partition = broker.groups.partition_of(request.group_id)
    if partition is None:
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def answer(reply: Any) -> None:
        is_error = isinstance(reply, PenstockError)
        call.answer(AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=reply.code) if is_error else reply)

    wanted = AddOffsets(ask=command(request, call), offsets_partition=partition)
    broker.transactions.submit(request.transactional_id, wanted, answer)
    return None

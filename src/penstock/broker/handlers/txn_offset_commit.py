"""TxnOffsetCommit: commits consumer group offsets as part of a transaction."""

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.registry import handles
from penstock.broker.transactions.add_partitions import join_transaction
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError, StorageError
from penstock.foundation.ids import TopicPartition
from penstock.groups.offsets.commit_responses import same_code, txn_commit_response
from penstock.transactions.add_partitions import code_for_producer
from penstock.wire.keys import ApiKey
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

ABORTABLE_FROM: Final = 4
"""First TxnOffsetCommit version whose response may have the error code TRANSACTION_ABORTABLE."""
JOINS_FROM: Final = 5
"""First TxnOffsetCommit version that adds the __consumer_offsets partition to the transaction (KIP-890)."""


@handles(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(request: TxnOffsetCommitRequest, call: Call, broker: Broker) -> None:
    def error_response(code: int) -> TxnOffsetCommitResponse:
        return txn_commit_response(request, same_code(code))

    number = broker.groups.partition_of(request.group_id)
    partition = broker.partitions.find(broker.groups.topic, number) if number is not None else None
    if partition is None or not partition.is_online:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if number is None else ErrorCode.NOT_COORDINATOR
        call.answer(error_response(code))
        return

    def on_joined(refused: dict[TopicPartition, PenstockError]) -> None:
        error = refused.get(partition.name)
        if error is not None:
            code = ErrorCode.NOT_COORDINATOR if isinstance(error, StorageError) else error.code
            call.answer(error_response(code_for_producer(code, call.version >= ABORTABLE_FROM)))
        else:
            ask(broker.groups, request.group_id, request, call, lambda error: error_response(error.code))

    producer = ProducerKey(request.producer_id, request.producer_epoch)
    verify_only = call.version < JOINS_FROM
    join_transaction(request.transactional_id, producer, [partition], verify_only, broker, on_joined)

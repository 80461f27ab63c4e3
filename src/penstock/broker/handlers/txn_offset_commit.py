"""TxnOffsetCommit: commits consumer group offsets as part of a transaction."""

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.permissions import split_topics
from penstock.broker.registry import handles
from penstock.broker.transactions.add_partitions import join_transaction
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError, StorageError
from penstock.foundation.ids import TopicPartition
from penstock.groups.offsets.commit_responses import same_code, txn_commit_response
from penstock.transactions.add_partitions import code_for_producer
from penstock.wire.keys import ApiKey
from penstock.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from penstock.wire.schema import with_field

ABORTABLE_FROM: Final = 4
"""First TxnOffsetCommit version whose response may have the error code TRANSACTION_ABORTABLE."""
JOINS_FROM: Final = 5
"""First TxnOffsetCommit version that adds the __consumer_offsets partition to the transaction (KIP-890)."""


@handles(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(request: TxnOffsetCommitRequest, call: Call, broker: Broker) -> None:
    def error_response(code: int) -> TxnOffsetCommitResponse:
        return txn_commit_response(request, same_code(code))

    if call.authorizer is not None:
        code = _denied(request, call)
        if code != ErrorCode.NONE:
            call.answer(error_response(code))
            return
        allowed, denied = split_topics(request.topics, Operation.READ, call, broker)
        if denied:
            refused = txn_commit_response(
                with_field(request, "topics", denied), same_code(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            )
            call.amend = lambda response: with_field(response, "topics", [*response.topics, *refused.topics])
            request = with_field(request, "topics", allowed)
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


def _denied(request: TxnOffsetCommitRequest, call: Call) -> ErrorCode:
    if not call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not call.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE

"""AddPartitionsToTxn: adds partitions to one transaction or (for a peer broker) to several at once (KIP-890)."""

from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ResponseGatherer, command
from penstock.broker.permissions import refusal_of
from penstock.broker.registry import handles
from penstock.cluster.views import NotAllowedOnView
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import ClusterAuthorizationFailed, NotAuthorized, PenstockError
from penstock.foundation.ids import INTERNAL_TOPICS, TRANSACTIONS_TOPIC, TopicPartition
from penstock.transactions import add_partitions
from penstock.wire.keys import ApiKey
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)


@handles(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, call: Call, broker: Broker) -> None:
    version, topics = call.version, broker.image.by_name
    is_of_broker = version >= add_partitions.BATCHED_FROM
    if is_of_broker and not call.allows_in_cluster(Operation.CLUSTER_ACTION):
        refused = refusal_of(ApiKey.ADD_PARTITIONS_TO_TXN)
        call.answer(refused(ClusterAuthorizationFailed(f"{call.principal} is not a broker")))
        return
    # Only brokers send the versions for many transactions: those may add the offsets of a group (TxnOffsetCommit).
    forbidden = {TRANSACTIONS_TOPIC} if is_of_broker else INTERNAL_TOPICS

    def check_partition(one: TopicPartition) -> ErrorCode:
        if one.topic in forbidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # as in Kafka
        if not is_of_broker and not call.allows(Operation.WRITE, ResourceType.TOPIC, one.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = topics.get(one.topic)
        if topic is not None and one.partition in topic.partitions:
            return ErrorCode.NONE
        is_view = topic is None and one.topic in broker.image.shown_by_name
        return NotAllowedOnView.code if is_view else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    wanted = add_partitions.transactions_of(request, version)
    gatherer = ResponseGatherer(call, len(wanted), partial(_merge, version))
    for number, one in enumerate(wanted):
        take = gatherer.receiver(number, partial(_refused, one, version))
        name = one.transactional_id
        if not is_of_broker and not call.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            take(NotAuthorized.of(call.principal, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name))
            continue
        unknown = add_partitions.refuse_unknown(one, check_partition)
        if unknown is not None:
            take(add_partitions.response([unknown], version))
        else:
            broker.transactions.submit(
                one.transactional_id, command(add_partitions.request_for(one, version), call), take
            )


def _refused(one: AddPartitionsToTxnTransaction, version: int, error: PenstockError) -> AddPartitionsToTxnResponse:
    return add_partitions.response([add_partitions.refuse(one, error.code)], version)


def _merge(version: int, answers: list[Any]) -> AddPartitionsToTxnResponse:
    if version < add_partitions.BATCHED_FROM:
        response: AddPartitionsToTxnResponse = answers[0]
        return response
    return add_partitions.response(
        [result for answer in answers for result in answer.results_by_transaction], version
    )

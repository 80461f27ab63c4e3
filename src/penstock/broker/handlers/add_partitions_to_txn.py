"""AddPartitionsToTxn: partitions join a client's transaction, or many transactions of which another broker asks."""

from functools import partial
from typing import Any

from penstock.broker.asking import Gathering, command
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.transactions import joining
from penstock.wire.keys import ApiKey
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)


@handles(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, call: Call, broker: Broker) -> None:
    version, topics = call.version, broker.image.by_name

    def exists(one: TopicPartition) -> bool:
        topic = topics.get(one.topic)
        return topic is not None and one.partition in topic.partitions

    wanted = joining.transactions_of(request, version)
    gathering = Gathering(call, len(wanted), partial(_merge, version))
    for number, one in enumerate(wanted):
        take = gathering.taker(number, partial(_refused, one, version))
        unknown = joining.refuse_unknown(one, exists)
        if unknown is not None:
            take(joining.response([unknown], version))
        else:
            broker.transactions.submit(one.transactional_id, command(joining.request_for(one, version), call), take)


def _refused(one: AddPartitionsToTxnTransaction, version: int, error: PenstockError) -> AddPartitionsToTxnResponse:
    return joining.response([joining.refuse(one, error.code)], version)


def _merge(version: int, answers: list[Any]) -> AddPartitionsToTxnResponse:
    if version < joining.BATCHED_FROM:
        response: AddPartitionsToTxnResponse = answers[0]
        return response
    return joining.response([result for answer in answers for result in answer.results_by_transaction], version)

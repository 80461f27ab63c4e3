"""TxnOffsetCommit: offsets that count once their transaction has committed."""

from typing import Final

from penstock.broker.asking import ask
from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.transactions.commands import JoinTransaction
from penstock.wire.keys import ApiKey
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

JOINS_FROM: Final = 5
"""From this version on the partition joins the transaction by being written to (KIP-890)."""


@handles(ApiKey.TXN_OFFSET_COMMIT)
def txn_offset_commit(request: TxnOffsetCommitRequest, call: Call, broker: Broker) -> None:
    number = broker.groups.partition_of(request.group_id)
    if number is None:
        call.answer(refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    place = TopicPartition(broker.groups.topic, number)

    def on_joined(value: dict[TopicPartition, ErrorCode] | PenstockError) -> None:
        error = value.code if isinstance(value, PenstockError) else value[place]
        if error:
            call.answer(refuse(request, error))
        else:
            ask(broker.groups, request.group_id, request, call, lambda error: refuse(request, error.code))

    command = JoinTransaction(
        transactional_id=request.transactional_id,
        producer=ProducerKey(request.producer_id, request.producer_epoch),
        partitions=(place,),
        verify_only=call.version < JOINS_FROM,
    )
    broker.transactions.submit(request.transactional_id, command, on_joined)


def refuse(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )

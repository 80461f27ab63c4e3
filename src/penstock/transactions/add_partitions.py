"""AddPartitionsToTxn and AddOffsetsToTxn: adds partitions to a transaction, or verifies them (KIP-890). Pure.

Before transaction version 2, the client adds partitions, and the partition leader verifies that they were added. From
version 2 on, the partition leader adds them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.transactions.checks import check_not_ending, check_producer, check_query_not_closed, find
from penstock.transactions.commands import JoinTransaction
from penstock.transactions.draft import Draft
from penstock.transactions.states import State
from penstock.transactions.transaction import TV_0, TV_2
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_FROM: Final = 4
"""First version of AddPartitionsToTxn that brokers send to each other, with many transactions per request."""

Codes = dict[TopicPartition, ErrorCode]


def add(
    draft: Draft, name: str, producer: ProducerKey, partitions: Collection[TopicPartition], version: int, now_ms: int
) -> None:
    """Adds partitions to the transaction of a transactional id, or begins one. `version`: the transaction version."""
    known = find(draft, name)
    # Before check_producer: the client may use the next producer id already (KAFKA-18660).
    check_not_ending(known)
    check_producer(known, producer)
    check_query_not_closed(draft, name)
    is_in = known.state is State.ONGOING and known.partitions.issuperset(partitions)
    if is_in and version >= TV_2:
        return
    # Persist even if nothing changes: before version 2 the next transaction has the same epoch, and a replaced
    # coordinator may take an ended transaction for the current one. It cannot persist, and so does not confirm.
    draft.put(known.joined(partitions, version, now_ms))


def verify(draft: Draft, name: str, producer: ProducerKey, partitions: Collection[TopicPartition]) -> Codes:
    """Returns the error code of each partition: NONE if it is in the ongoing transaction, else
    TRANSACTION_ABORTABLE."""
    known = find(draft, name)
    check_producer(known, producer)
    check_not_ending(known)
    inside = known.partitions
    return {one: ErrorCode.NONE if one in inside else ErrorCode.TRANSACTION_ABORTABLE for one in partitions}


def join(
    draft: Draft,
    name: str,
    producer: ProducerKey,
    partitions: Collection[TopicPartition],
    verify_only: bool,
    now_ms: int,
    version: int = TV_2,
) -> Codes:
    """Adds partitions to the transaction of the transactional id `name`; if `verify_only`, checks only that it has
    them. Returns the error code of each partition, NONE if it succeeded. `version`: the transaction version."""
    try:
        if verify_only:
            return verify(draft, name, producer, partitions)
        add(draft, name, producer, partitions, version, now_ms)
    except PenstockError as error:
        return dict.fromkeys(partitions, error.code)
    return dict.fromkeys(partitions, ErrorCode.NONE)


def code_for_client(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Returns `code`, or INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED if the request's API version is below
    `fenced_from`, the first version whose clients know PRODUCER_FENCED (KIP-588)."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def code_for_producer(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """Converts an error code in the reply to JoinTransaction to the code for the producing client (KIP-890).

    `knows_abortable`: whether the client knows TRANSACTION_ABORTABLE (Produce v11+, TxnOffsetCommit v4+).
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


# -- AddPartitionsToTxn


def transactions_of(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    """Returns the transactions in a request; a request from a client has exactly one."""
    if version >= BATCHED_FROM:
        return list(request.transactions)
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def request_for(wanted: AddPartitionsToTxnTransaction, version: int) -> AddPartitionsToTxnRequest:
    """Builds a request that contains only this transaction."""
    if version >= BATCHED_FROM:
        return AddPartitionsToTxnRequest(transactions=(wanted,))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=wanted.transactional_id,
        v3_and_below_producer_id=wanted.producer_id,
        v3_and_below_producer_epoch=wanted.producer_epoch,
        v3_and_below_topics=wanted.topics,
    )


def request_to_join(command: JoinTransaction) -> AddPartitionsToTxnRequest:
    """Builds the request by which a partition leader joins a transaction whose coordinator is on another broker."""
    topics: dict[str, list[int]] = {}
    for one in command.partitions:
        topics.setdefault(one.topic, []).append(one.partition)
    wanted = AddPartitionsToTxnTransaction(
        transactional_id=command.transactional_id,
        producer_id=command.producer.producer_id,
        producer_epoch=command.producer.epoch,
        verify_only=command.verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
    )
    return AddPartitionsToTxnRequest(transactions=(wanted,))


def codes_in(response: AddPartitionsToTxnResponse) -> Codes:
    """Returns the error code of each partition in the response of a coordinator on another broker."""
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for found in response.results_by_transaction
        for topic in found.topic_results
        for one in topic.results_by_partition
    }


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def refuse_unknown(
    wanted: AddPartitionsToTxnTransaction, code_of: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResult | None:
    """Returns None if `code_of` gives no error for any partition. Otherwise returns the result that refuses all
    partitions: those without an error of their own get OPERATION_NOT_ATTEMPTED."""
    codes = {one: code_of(one) for one in partitions_of(wanted.topics)}
    if not any(codes.values()):
        return None
    return result(
        wanted.transactional_id, {one: code or ErrorCode.OPERATION_NOT_ATTEMPTED for one, code in codes.items()}
    )


def refuse(wanted: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResult:
    """Returns the result that refuses all partitions of a transaction with one error code."""
    return result(wanted.transactional_id, dict.fromkeys(partitions_of(wanted.topics), code))


def answer(
    draft: Draft, wanted: AddPartitionsToTxnTransaction, version: int, now_ms: int
) -> AddPartitionsToTxnResult:
    codes = join(
        draft,
        wanted.transactional_id,
        ProducerKey(wanted.producer_id, wanted.producer_epoch),
        partitions_of(wanted.topics),
        wanted.verify_only,
        now_ms,
        TV_2 if version >= BATCHED_FROM else TV_0,
    )
    return result(
        wanted.transactional_id,
        {one: code_for_client(code, version, fenced_from=2) for one, code in codes.items()},
    )


def result(transactional_id: str, codes: Mapping[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for one, code in codes.items():
        topics.setdefault(one.topic, []).append(
            AddPartitionsToTxnPartitionResult(partition_index=one.partition, partition_error_code=code)
        )
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in topics.items()
        ],
    )


def response(results: list[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    """Builds the response. Requests from version BATCHED_FROM on come from brokers: the response has all `results`.
    Earlier requests come from clients, and there is only one result."""
    if version >= BATCHED_FROM:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)

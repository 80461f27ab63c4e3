"""Responses to DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152). Pure."""

from collections.abc import Iterable

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.patterns import Pattern
from penstock.transactions.states import BY_LABEL
from penstock.transactions.transaction import Transaction
from penstock.wire.messages import describe_transactions, list_transactions
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def describe(transactional_id: str, known: Transaction | None) -> describe_transactions.TransactionState:
    if not transactional_id:
        return not_described(transactional_id, ErrorCode.INVALID_REQUEST)
    if known is None:
        return not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(known.partitions):
        topics.setdefault(topic, []).append(number)
    return describe_transactions.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[describe_transactions.TopicData(topic=name, partitions=numbers) for name, numbers in topics.items()],
    )


def not_described(transactional_id: str, code: ErrorCode) -> describe_transactions.TransactionState:
    return describe_transactions.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=(),
    )


def listing(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, now_ms: int
) -> ListTransactionsResponse:
    """Returns the transactions that pass all filters of the request."""
    states = {BY_LABEL[name] for name in request.state_filters if name in BY_LABEL}
    producers = set(request.producer_id_filters)
    try:
        pattern = Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except PenstockError as error:
        return not_listed(error.code)
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=[name for name in request.state_filters if name not in BY_LABEL],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=known.transactional_id,
                producer_id=known.producer_id,
                transaction_state=known.state.label,
            )
            for known in transactions
            if (not producers or known.producer_id in producers)
            and (not request.state_filters or known.state in states)
            # As in Kafka, an id that has no transaction yet counts as one that began long ago.
            and (request.duration_filter < 0 or now_ms - known.started_ms > request.duration_filter)
            and (pattern is None or pattern.matches(known.transactional_id))
        ],
    )


def not_listed(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=(), transaction_states=()
    )

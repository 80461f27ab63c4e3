"""DescribeTransactions: returns the state of transactions, each from its coordinator (KIP-664)."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_each
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import PenstockError
from penstock.transactions.description import not_described
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from penstock.wire.schema import with_field


@handles(ApiKey.DESCRIBE_TRANSACTIONS)
def describe_transactions(request: DescribeTransactionsRequest, call: Call, broker: Broker) -> Awaitable[None] | None:
    parts = [
        (name, DescribeTransactionsRequest(transactional_ids=(name,)))
        for name in dict.fromkeys(request.transactional_ids)
    ]
    return ask_each(broker, broker.transactions, parts, Operation.DESCRIBE, call, _refused, partial(_merge, call))


def _refused(part: DescribeTransactionsRequest, error: PenstockError) -> DescribeTransactionsResponse:
    states = [not_described(name, error.code) for name in part.transactional_ids]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _merge(call: Call, answers: list[Any]) -> DescribeTransactionsResponse:
    states = [_shown(state, call) for answer in answers for state in answer.transaction_states]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _shown(state: TransactionState, call: Call) -> TransactionState:
    """Returns the description without topics that the client may not know."""
    if call.authorizer is None:
        return state
    topics = [
        topic
        for topic in state.topics
        if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic, audited=False)
    ]
    return with_field(state, "topics", topics)

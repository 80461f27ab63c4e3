"""ListTransactions: lists transactional ids whose coordinator is this broker (KIP-664, KIP-994, KIP-1152)."""

from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_all
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import NotCoordinator, PenstockError
from penstock.transactions.description import listing, not_listed
from penstock.wire.keys import ApiKey
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


@handles(ApiKey.LIST_TRANSACTIONS)
async def list_transactions(
    request: ListTransactionsRequest, call: Call, broker: Broker
) -> ListTransactionsResponse | None:
    try:
        broker.transactions.check_loaded()
    except PenstockError as error:
        return not_listed(error.code)
    # Invalid filters are reported even if there is no coordinator to ask.
    none = listing((), request, now_ms=0)
    if none.error_code:
        return none
    runtimes = list(broker.transactions.loaded.values())
    await ask_all(broker, runtimes, request, call, _refused, partial(_merge, none, call))
    return None


def _refused(error: PenstockError) -> ListTransactionsResponse:
    # Transactions that have just moved to another broker are listed there.
    return not_listed(ErrorCode.NONE if isinstance(error, NotCoordinator) else error.code)


def _merge(none: ListTransactionsResponse, call: Call, answers: list[Any]) -> ListTransactionsResponse:
    """Merges the responses, or returns the first error. `none`: empty response that has the unknown_state_filters."""
    code = next((answer.error_code for answer in answers if answer.error_code), ErrorCode.NONE)
    if code:
        return not_listed(code)
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=none.unknown_state_filters,
        transaction_states=[
            state
            for answer in answers
            for state in answer.transaction_states
            if call.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_id, audited=False)
        ],
    )

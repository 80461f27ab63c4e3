"""EndTxn: commits or aborts a transaction; answers once the decision is replicated, before markers are written."""

from collections.abc import Awaitable
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import command
from penstock.broker.permissions import WRITE_IN_TRANSACTION
from penstock.broker.registry import handles
from penstock.foundation.decision import ClientRequest
from penstock.foundation.errors import PenstockError
from penstock.transactions.commands import EndTransaction
from penstock.transactions.errors import NeedsProducerId
from penstock.wire.keys import ApiKey
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


@handles(ApiKey.END_TXN, WRITE_IN_TRANSACTION)
def end_txn(request: EndTxnRequest, call: Call, broker: Broker) -> Awaitable[EndTxnResponse | None] | None:
    wanted = command(request, call)
    needs: list[NeedsProducerId] = []

    def answer(reply: Any) -> None:
        if isinstance(reply, NeedsProducerId):
            needs.append(reply)  # replied at once, before anything is persisted
        else:
            _answer(call, reply)

    broker.transactions.submit(request.transactional_id, wanted, answer)
    return _end_with_fresh_id(wanted, call, broker) if needs else None


async def _end_with_fresh_id(wanted: ClientRequest, call: Call, broker: Broker) -> EndTxnResponse | None:
    """Ends the transaction and assigns a new producer id: the old id has used all of its 32,767 epochs. Returns an
    error response if there is no new id; else None, and the coordinator answers `call`."""
    try:
        again = EndTransaction(request=wanted, fresh_producer_id=await broker.producer_ids.take())
    except PenstockError as error:
        return _refused(error)
    broker.transactions.submit(wanted.body.transactional_id, again, lambda reply: _answer(call, reply))
    return None


def _answer(call: Call, reply: Any) -> None:
    call.answer(_refused(reply) if isinstance(reply, PenstockError) else reply)


def _refused(error: PenstockError) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=error.code)

"""What is checked of every request about a transaction that has begun, or is about to. Pure."""

from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.spark_ids import query_of
from penstock.transactions.draft import Draft
from penstock.transactions.errors import ConcurrentTransactions, InvalidProducerIdMapping, ProducerFenced
from penstock.transactions.transaction import Transaction


def find(draft: Draft, transactional_id: str) -> Transaction:
    """The id, which must have been initialised."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty; give the producer one of its own")
    known = draft.get(transactional_id)
    if known is None:
        raise InvalidProducerIdMapping(
            f"transactional id {transactional_id!r} is not known, or has expired; initialise the producer first"
        )
    return known


def check_not_ending(known: Transaction) -> None:
    if known.is_prepared:
        raise ConcurrentTransactions(f"{known.transactional_id!r} is still {known.state.label}; ask again")


def check_query_not_closed(draft: Draft, transactional_id: str) -> None:
    """No task of a closed query begins a transaction: its driver is gone, and nobody would end it."""
    query = query_of(transactional_id)
    if query is not None and draft.queries.is_closed(query):
        raise ProducerFenced(f"{transactional_id!r} can begin no transaction: query {query!r} is closed")


def check_producer(known: Transaction, came: ProducerKey) -> None:
    """Only the present producer may go on."""
    if came.producer_id != known.producer_id:
        raise InvalidProducerIdMapping(
            f"{known.transactional_id!r} belongs to producer {known.producer_id}, not to {came.producer_id}"
        )
    if came.epoch != known.epoch:
        raise fenced(known, came)


def fenced(known: Transaction, came: ProducerKey) -> ProducerFenced:
    return ProducerFenced(
        f"{known.transactional_id!r} is at epoch {known.epoch} of producer {known.producer_id}, the request at"
        f" {came.epoch} of {came.producer_id}: another producer has taken over, or the transaction has timed out"
    )

"""Checks shared by transaction requests: transactional id, producer epoch, transaction state, Spark query. Pure."""

from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.spark_ids import query_of
from penstock.transactions.draft import Draft
from penstock.transactions.errors import ConcurrentTransactions, InvalidProducerIdMapping, ProducerFenced
from penstock.transactions.transaction import Transaction


def find(draft: Draft, transactional_id: str) -> Transaction:
    """Returns the state of a transactional id. Raises InvalidRequest if the id is empty, InvalidProducerIdMapping if
    it is unknown or has expired."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty; set a unique transactional.id for each producer")
    known = draft.get(transactional_id)
    if known is None:
        raise InvalidProducerIdMapping(
            f"transactional id {transactional_id!r} is unknown or has expired; call InitProducerId first"
        )
    return known


def check_not_ending(known: Transaction) -> None:
    if known.is_prepared:
        raise ConcurrentTransactions(f"{known.transactional_id!r} is still {known.state.label}; retry")


def check_query_not_closed(draft: Draft, transactional_id: str) -> None:
    """Raises ProducerFenced if the id belongs to a Spark query that is closed (has ended): no driver would end its
    new transaction."""
    query = query_of(transactional_id)
    if query is not None and draft.queries.is_closed(query):
        raise ProducerFenced(f"{transactional_id!r} cannot begin a transaction: Spark query {query!r} is closed")


def check_producer(known: Transaction, claimed: ProducerKey) -> None:
    """Raises InvalidProducerIdMapping or ProducerFenced unless the request has the current producer id and epoch."""
    if claimed.producer_id != known.producer_id:
        raise InvalidProducerIdMapping(
            f"{known.transactional_id!r} belongs to producer id {known.producer_id}, not to {claimed.producer_id}"
        )
    if claimed.epoch != known.epoch:
        raise fenced(known, claimed)


def fenced(known: Transaction, claimed: ProducerKey) -> ProducerFenced:
    return ProducerFenced(
        f"{known.transactional_id!r} has epoch {known.epoch} of producer id {known.producer_id}, the request has"
        f" {claimed.epoch} of {claimed.producer_id}: another producer has taken over, or the transaction timed out"
    )

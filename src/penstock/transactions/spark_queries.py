"""Spark queries of a transaction coordinator: last committed batch and open transactions of each query. Pure.

The last committed batch is stored until the query is forgotten, and does not expire with transactional ids: a query
may be restarted after a year, and repeats its last batch if it failed between CommitSet and Spark's commit log. A
closed query is never restarted: it is forgotten after transactional.id.expiration.ms, when its tasks are gone.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.foundation.spark_ids import query_of
from penstock.transactions.records import DECIDED, DecidedKey, DecidedValue
from penstock.wire.messages.commit_set import BATCH_ID_MAX
from penstock.wire.state import read_record, state_record

NO_BATCH: Final = -1
CLOSED: Final = BATCH_ID_MAX + 1
"""Smallest `batch_id` that marks a Spark query as closed (ended): such a `batch_id` is CLOSED + 1 + the id of the
query's last committed batch (-1 if it has none)."""
QUERIES_MAX: Final = 100_000
"""Maximum number of Spark queries whose last committed batch one coordinator stores. Above it, new queries are
refused until the entry of another query is deleted."""


class Decided(NamedTuple):
    """The last committed batch of a Spark query, as stored by the transaction coordinator."""

    query: str
    batch_id: int
    """Id of the last committed batch. In the record that closes the query, CLOSED + 1 + that id."""
    decided_ms: int
    participants: int

    @property
    def last_batch_id(self) -> int:
        return self.batch_id - CLOSED - 1 if self.is_closed else self.batch_id

    @property
    def is_closed(self) -> bool:
        return self.batch_id >= CLOSED

    def to_record(self) -> StateRecord:
        value = DecidedValue(
            batch_id=self.batch_id, decided_timestamp_ms=self.decided_ms, participants=self.participants
        )
        return state_record(DECIDED, DecidedKey(query=self.query), value)


def closed(query: str, last_batch_id: int, now_ms: int) -> StateRecord:
    """Returns the record that closes a Spark query, after which no more batches of the query are committed."""
    return Decided(query, CLOSED + 1 + last_batch_id, now_ms, 0).to_record()


def forgotten(query: str) -> StateRecord:
    """Returns the tombstone that deletes a Spark query's entry, because its last committed batch is no longer
    needed."""
    return state_record(DECIDED, DecidedKey(query=query), None)


class Queries:
    """The Spark queries of one transaction coordinator: last committed batch and open transactions. Changed by
    applying records only."""

    def __init__(self) -> None:
        self.decided: dict[str, Decided] = {}
        self.closed: dict[str, int] = {}
        """By closed query: the time, in milliseconds, at which it was closed. The oldest is first."""
        self._open: dict[str, dict[str, None]] = {}
        """Transactional ids with an ongoing transaction, by query, in the order in which the transactions began."""

    def last_batch_of(self, query: str) -> int:
        known = self.decided.get(query)
        return NO_BATCH if known is None else known.last_batch_id

    def is_closed(self, query: str) -> bool:
        return query in self.closed

    def closed_until(self, until_ms: int) -> Iterator[str]:
        """Yields the Spark queries that were closed (ended) at or before `until_ms`."""
        for query, closed_ms in self.closed.items():
            if closed_ms > until_ms:
                return
            yield query

    def open_of(self, query: str) -> list[str]:
        """Returns the transactional ids of a query that have an ongoing transaction."""
        return list(self._open.get(query, ()))

    def apply(self, record: StateRecord) -> None:
        """Applies a record of a Spark query: a batch was committed, the query was closed (ended), or its entry was
        deleted."""
        key, value = read_record(record, DecidedKey, DecidedValue)
        self.closed.pop(key.query, None)
        if value is None:
            self.decided.pop(key.query, None)
            return
        decided = self.decided[key.query] = Decided(
            query=key.query,
            batch_id=value.batch_id,
            decided_ms=value.decided_timestamp_ms,
            participants=value.participants,
        )
        if decided.is_closed:
            self.closed[key.query] = decided.decided_ms

    def follow(self, transactional_id: str, is_open: bool) -> None:
        """Records whether a transactional id of a Spark query has an ongoing transaction; ignores all other ids."""
        query = query_of(transactional_id)
        if query is None:
            return
        if is_open:
            self._open.setdefault(query, {})[transactional_id] = None
            return
        names = self._open.get(query)
        if names is not None:
            names.pop(transactional_id, None)
            if not names:
                del self._open[query]

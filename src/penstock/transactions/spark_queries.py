"""What is known of Spark's queries: the last batch of each that was decided, and which of its transactions are open.

What was decided is kept until the query is forgotten, and does not expire with transactional ids: a query may be
started again after a year, and then repeats its last batch if it had died between the decision and Spark's own note
of it. A query that is closed is not started again: it is forgotten after as long a time as a transactional id that
nobody uses, when none of its tasks can be alive. Pure.
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
"""Added to the last batch (counted from 1) of a query that is closed: so it is behind every batch that may come."""
QUERIES_MAX: Final = 100_000
"""Queries that one coordinator remembers; more must be forgotten first."""


class Decided(NamedTuple):
    """The last batch of a query that was committed."""

    query: str
    batch_id: int
    """CLOSED and more: the query is closed."""
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
    """The record of a query of which nothing more is decided."""
    return Decided(query, CLOSED + 1 + last_batch_id, now_ms, 0).to_record()


def forgotten(query: str) -> StateRecord:
    """The record of a query whose decisions nobody needs any more."""
    return state_record(DECIDED, DecidedKey(query=query), None)


class Queries:
    """Changes only by records, like all that must survive."""

    def __init__(self) -> None:
        self.decided: dict[str, Decided] = {}
        self.closed: dict[str, int] = {}
        """By query that is closed, since when; in the order in which they were."""
        self._open: dict[str, dict[str, None]] = {}
        """By query, its transactions that are under way, in the order in which they began."""

    def last_batch_of(self, query: str) -> int:
        known = self.decided.get(query)
        return NO_BATCH if known is None else known.last_batch_id

    def is_closed(self, query: str) -> bool:
        """Whether no batch of a query is decided any more."""
        return query in self.closed

    def closed_until(self, until_ms: int) -> Iterator[str]:
        """The queries that were closed by then."""
        for query, closed_ms in self.closed.items():
            if closed_ms > until_ms:
                return
            yield query

    def open_of(self, query: str) -> list[str]:
        """The transactional ids of a query that have a transaction under way."""
        return list(self._open.get(query, ()))

    def apply(self, record: StateRecord) -> None:
        """Something was decided of a query, or it was forgotten."""
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
        """A transactional id has taken a step: whether it has a transaction under way now."""
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

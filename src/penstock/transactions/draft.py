"""Draft of one coordinator decision: changed transactions and the records that persist the changes. Pure."""

from collections.abc import Mapping
from typing import Final

from penstock.foundation.decision import StateRecord
from penstock.transactions.spark_queries import Queries
from penstock.transactions.transaction import Transaction

RECORD_BYTES: Final = 32
"""Upper bound, in bytes, of a record's overhead in addition to key and value."""


def size_bytes_of(record: StateRecord) -> int:
    return len(record.key) + len(record.value or b"") + RECORD_BYTES


class Draft:
    """Changed transactions and records of one decision; the coordinator is unchanged until they are applied."""

    def __init__(self, known: Mapping[str, Transaction], queries: Queries) -> None:
        self._known = known
        self.queries = queries
        self._changed: dict[str, Transaction] = {}
        self._records: list[StateRecord] = []
        self.is_atomic = False
        """Whether all records must be persisted atomically; see Decision."""
        self.size_bytes = 0
        """Upper bound, in bytes, of the size that this draft's records have in a record batch."""

    def get(self, transactional_id: str) -> Transaction | None:
        changed = self._changed.get(transactional_id)
        return self._known.get(transactional_id) if changed is None else changed

    def put(self, transaction: Transaction, record: StateRecord | None = None) -> None:
        """Adds the new state of a transaction. `record`: the encoded state, if the caller has it already."""
        self._changed[transaction.transactional_id] = transaction
        self.add_record(transaction.to_record() if record is None else record)

    def end(self, prepared: Transaction, now_ms: int, record: StateRecord | None = None) -> None:
        """Adds a transaction in a Prepare state; also completes it if it has no partitions that need markers.
        `record`: the encoded Prepare state, if the caller has it already."""
        self.put(prepared, record)
        if not prepared.partitions:
            self.put(prepared.completed(now_ms))

    def add_record(self, record: StateRecord) -> None:
        """Adds a record, of a transaction or of a Spark query."""
        self._records.append(record)
        self.size_bytes += size_bytes_of(record)

    @property
    def records(self) -> tuple[StateRecord, ...]:
        return tuple(self._records)

    @property
    def to_mark(self) -> list[Transaction]:
        """Changed transactions in a Prepare state, whose partitions need markers."""
        return [transaction for transaction in self._changed.values() if transaction.is_prepared]

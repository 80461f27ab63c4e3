"""What one decision would change. Several rules, about several transactional ids, can write to one draft."""

from collections.abc import Mapping
from typing import Final

from penstock.foundation.decision import StateRecord
from penstock.transactions.spark_queries import Queries
from penstock.transactions.transaction import Transaction

RECORD_BYTES: Final = 32
"""At most what a record takes besides its key and value."""


def size_bytes_of(record: StateRecord) -> int:
    return len(record.key) + len(record.value or b"") + RECORD_BYTES


class Draft:
    """Reads see what was written before; nothing holds until the records are persisted and applied."""

    def __init__(self, known: Mapping[str, Transaction], queries: Queries) -> None:
        self._known = known
        self.queries = queries
        self._changed: dict[str, Transaction] = {}
        self._records: list[StateRecord] = []
        self.is_whole = False
        """Whether the records hold all or none; see Decision."""
        self.size_bytes = 0
        """What the records take in a batch, or a little more."""

    def get(self, transactional_id: str) -> Transaction | None:
        changed = self._changed.get(transactional_id)
        return self._known.get(transactional_id) if changed is None else changed

    def put(self, transaction: Transaction, record: StateRecord | None = None) -> None:
        """`record`: the transaction's, if it was made before."""
        self._changed[transaction.transactional_id] = transaction
        self.note(transaction.to_record() if record is None else record)

    def end(self, prepared: Transaction, now_ms: int) -> None:
        """A transaction that is decided. Without partitions there is nothing to wait for: it is complete as well."""
        self.put(prepared)
        if not prepared.partitions:
            self.put(prepared.completed(now_ms))

    def note(self, record: StateRecord) -> None:
        """Every record comes this way, also what is not about a transactional id."""
        self._records.append(record)
        self.size_bytes += size_bytes_of(record)

    @property
    def records(self) -> tuple[StateRecord, ...]:
        return tuple(self._records)

    @property
    def to_mark(self) -> list[Transaction]:
        """The transactions that were decided, and whose partitions have to be told."""
        return [transaction for transaction in self._changed.values() if transaction.is_prepared]

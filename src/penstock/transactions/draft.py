"""What one decision would change. Several rules, about several transactional ids, can write to one draft."""

from collections.abc import Mapping

from penstock.foundation.decision import StateRecord
from penstock.transactions.transaction import Transaction, tombstone


class Draft:
    """Reads see what was written before; nothing holds until the records are persisted and applied."""

    def __init__(self, known: Mapping[str, Transaction]) -> None:
        self._known = known
        self._changed: dict[str, Transaction] = {}
        self._records: list[StateRecord] = []

    def get(self, transactional_id: str) -> Transaction | None:
        changed = self._changed.get(transactional_id)
        return self._known.get(transactional_id) if changed is None else changed

    def put(self, transaction: Transaction) -> None:
        self._changed[transaction.transactional_id] = transaction
        self._records.append(transaction.to_record())

    def remove(self, transactional_id: str) -> None:
        """Nothing else of this id is read or written in the same draft."""
        self._records.append(tombstone(transactional_id))

    def end(self, prepared: Transaction, now_ms: int) -> None:
        """A transaction that is decided. Without partitions there is nothing to wait for: it is complete as well."""
        self.put(prepared)
        if not prepared.partitions:
            self.put(prepared.completed(now_ms))

    @property
    def records(self) -> tuple[StateRecord, ...]:
        return tuple(self._records)

    @property
    def to_mark(self) -> list[Transaction]:
        """The transactions that were decided, and whose partitions have to be told."""
        return [transaction for transaction in self._changed.values() if transaction.is_prepared]

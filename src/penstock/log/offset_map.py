"""The offset map of the log cleaner: the last offset of every key. Its memory does not depend on key lengths."""

from penstock.records import kernel
from penstock.records.columns import Columns


class KeyTable:
    def __init__(self, keys_max: int, secret: bytes) -> None:
        self._keys_max = keys_max
        self._table = kernel.active.new_key_table(secret)

    @property
    def is_full(self) -> bool:
        return len(self._table) >= self._keys_max

    def note(self, columns: Columns) -> None:
        """Records the offsets of these records by key; the records must come after all records noted before."""
        self._table.note(columns.body, columns.key_at, columns.key_len, columns.offsets)

    def mask(self, columns: Columns, drop_tombstones: bool) -> bytearray:
        """Returns a byte per record: 1 if the table has no later record of its key, else 0. Records without a key
        get 0, as in Kafka; with `drop_tombstones`, so do tombstones."""
        return self._table.mask(
            columns.body, columns.key_at, columns.key_len, columns.value_len, columns.offsets, drop_tombstones
        )

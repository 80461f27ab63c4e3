"""The last offset of every key, for compaction: bounded in memory, whatever the length of the keys."""

from hashlib import blake2b
from typing import Final

from penstock.records.columns import Columns

DIGEST_BYTES: Final = 16


class KeyTable:
    """Keys are known by a digest of sixteen bytes: two keys that share one are not to be expected."""

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._keys_max

    def note(self, columns: Columns) -> None:
        """These records are later than all that was noted before."""
        for row in range(columns.count):
            key = columns.key(row)
            if key is not None:
                self._offsets[_digest(key)] = columns.offsets[row]

    def mask(self, columns: Columns, drop_tombstones: bool) -> bytearray:
        """A byte for each record: 1 if it is the last of its key, as far as this table knows."""
        out = bytearray(columns.count)
        for row in range(columns.count):
            key = columns.key(row)
            if key is None or (drop_tombstones and columns.value_len[row] < 0):
                continue  # without a key there is no last one; such records go, as in Kafka
            if columns.offsets[row] >= self._offsets.get(_digest(key), -1):
                out[row] = 1
        return out


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()

"""Batches decoded for delayed messages: small ones on the event loop, large ones on a thread, the last few kept."""

from collections import OrderedDict
from typing import Final

from penstock.foundation.errors import MessageTooLarge, PenstockError
from penstock.log.disk import ColdRead
from penstock.log.log import Log
from penstock.records.batch import BatchHeader
from penstock.records.columns import INLINE_BODY_BYTES, Columns, decode_columns
from penstock.records.layout import Buffer

KEPT_BYTES_MAX: Final = 128 << 20
_ROW_BYTES: Final = 48
"""Memory of the columns for one record."""

_Key = tuple[int, int, int]


class LargeBatches:
    """Decoded batches of all logs, the one used longest ago first. At least one is kept, however large."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[_Key, Columns | PenstockError] = OrderedDict()
        self._bytes = 0

    def decode(self, batch: Buffer, header: BatchHeader, log: Log) -> Columns:
        """Returns the columns of a batch. Raises ColdRead if a thread has to decode it first; CorruptMessage."""
        key = id(log), header.base_offset, header.crc
        found = self._kept.get(key)
        if found is None:
            try:
                return decode_columns(batch, INLINE_BODY_BYTES)
            except MessageTooLarge:
                whole, limit = bytes(batch), log.settings.decompressed_bytes_max
                raise ColdRead("a large batch", lambda: self._decode(key, whole, limit)) from None
        self._kept.move_to_end(key)
        if isinstance(found, PenstockError):
            raise found
        return found

    def _decode(self, key: _Key, batch: bytes, limit: int) -> None:
        """On a thread."""
        try:
            columns: Columns | PenstockError = decode_columns(batch, limit)
        except PenstockError as error:
            columns = error
        self._kept[key] = columns
        self._bytes += _size_of(columns)
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size_of(dropped)


def _size_of(columns: Columns | PenstockError) -> int:
    return 0 if isinstance(columns, PenstockError) else len(columns.body) + _ROW_BYTES * columns.count

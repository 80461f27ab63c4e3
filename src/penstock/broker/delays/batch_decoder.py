"""Decodes batches for delayed messages: small batches on the event loop, large batches on a thread, with a cache."""

import threading
from collections import OrderedDict
from typing import Final

from penstock.foundation.errors import MessageTooLarge, PenstockError
from penstock.log.disk import ColdRead
from penstock.log.log import Log
from penstock.records.batch import BatchHeader
from penstock.records.columns import INLINE_BODY_BYTES, Columns, decode_columns
from penstock.records.layout import Buffer

CACHE_BYTES_MAX: Final = 128 << 20
_ROW_BYTES: Final = 48
"""Approximate memory, in bytes, that a decoded batch needs per record."""

_Key = tuple[int, int, int]


class BatchDecoder:
    """Decodes batches. Caches large decoded batches of all logs (LRU): up to `bytes_max`, or one larger batch."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._cache: OrderedDict[_Key, Columns | PenstockError] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        """Guards the cache: threads add batches while the event loop looks batches up."""

    def decode(self, batch: Buffer, header: BatchHeader, log: Log) -> Columns:
        """Returns the columns of a batch. Raises CorruptMessage, and ColdRead if a thread must decode it first."""
        key = id(log), header.base_offset, header.crc
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._cache.move_to_end(key)
        if found is None:
            try:
                return decode_columns(batch, INLINE_BODY_BYTES)
            except MessageTooLarge:
                whole, limit = bytes(batch), log.settings.decompressed_bytes_max
                raise ColdRead("a large batch", lambda: self._decode(key, whole, limit)) from None
        if isinstance(found, PenstockError):
            raise found
        return found

    def _decode(self, key: _Key, batch: bytes, limit: int) -> None:
        """Decodes a batch and caches the result or the error. Runs on a thread."""
        try:
            columns: Columns | PenstockError = decode_columns(batch, limit)
        except PenstockError as error:
            columns = error
        with self._lock:
            if key not in self._cache:  # two threads may have decoded it
                self._cache[key] = columns
                self._bytes += _size_of(columns)
            while self._bytes > self._bytes_max and len(self._cache) > 1:
                _, dropped = self._cache.popitem(last=False)
                self._bytes -= _size_of(dropped)


def _size_of(columns: Columns | PenstockError) -> int:
    return 0 if isinstance(columns, PenstockError) else len(columns.body) + _ROW_BYTES * columns.count

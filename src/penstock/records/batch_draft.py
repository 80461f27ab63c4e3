"""Builds a record batch incrementally from rows of Arrow columns."""

import sys
from typing import NamedTuple

from penstock.foundation.errors import MessageTooLarge
from penstock.records import kernel
from penstock.records.batch import assemble
from penstock.records.compression import Codec, compress
from penstock.records.layout import HEADER_BYTES, TRANSACTIONAL, BinaryColumn, Buffer, HeadersColumn, Ints

BODY_BYTES_MAX = 2**31 - 1 - 49
"""Maximum body size of a batch, in bytes: the largest that its 32-bit length field allows."""


class RowColumns(NamedTuple):
    """Columns of records, one row per record; a column that is None has only nulls."""

    key: BinaryColumn | None
    value: BinaryColumn | None
    timestamps: Buffer | None
    """Timestamps as int64 milliseconds; if None, every record has `timestamp_ms`."""
    timestamp_ms: int
    headers: HeadersColumn | None

    def timestamp(self, row: int) -> int:
        if self.timestamps is None:
            return self.timestamp_ms
        cell = memoryview(self.timestamps).cast("B")[8 * row : 8 * row + 8]
        return int.from_bytes(cell, sys.byteorder, signed=True)


class BatchDraft:
    """A batch under construction: encoded records of one partition."""

    __slots__ = ("_base_timestamp", "_max_timestamp", "_pieces", "count", "size_bytes")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._base_timestamp = -1
        self._max_timestamp = -1
        self.count = 0
        self.size_bytes = HEADER_BYTES
        """Size of the batch so far, in bytes, uncompressed."""

    def take(self, columns: RowColumns, rows: Ints, start: int, end: int, bytes_max: int) -> int:
        """Adds rows[start:end] while they fit into `bytes_max`, and at least one row if the batch is empty. Returns
        the number of added rows."""
        if not self.count:
            self._base_timestamp = self._max_timestamp = columns.timestamp(rows[start])
        taken = self._encode(columns, rows, start, end, bytes_max - self.size_bytes)
        if not taken and not self.count:
            taken = self._encode(columns, rows, start, start + 1, BODY_BYTES_MAX)
            if not taken:
                raise MessageTooLarge(f"row {rows[start]} takes more than {BODY_BYTES_MAX} bytes")
        return taken

    def _encode(self, columns: RowColumns, rows: Ints, start: int, end: int, room_bytes: int) -> int:
        records, taken, max_timestamp = kernel.active.encode_rows(
            rows,
            start,
            end,
            self.count,
            room_bytes,
            columns.key,
            columns.value,
            columns.timestamps,
            self._base_timestamp,
            columns.headers,
        )
        if taken:
            self._pieces.append(records)
            self._max_timestamp = max(self._max_timestamp, max_timestamp)
            self.count += taken
            self.size_bytes += len(records)
        return taken

    def seal(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        """Returns the finished batch. There must be at least one record; the draft must not be used afterwards."""
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        return assemble(
            compress(codec, body, level),
            count=self.count,
            attributes=codec | (TRANSACTIONAL if transactional else 0),
            base_offset=0,
            last_offset_delta=self.count - 1,
            leader_epoch=-1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

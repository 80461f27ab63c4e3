"""A record batch as columns: positions of each record's parts in the decompressed body, without copying payloads.

The loops over records are in `_columns.pyx` or pure Python (see `kernel.py`); no Python object is created per record.
"""

import sys
from typing import Final

from penstock.foundation.errors import MessageTooLarge
from penstock.records import kernel
from penstock.records.batch import LENGTH_MAX, BatchHeader, assemble, check_shape, read_header
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from penstock.records.layout import (
    HEADER_BYTES,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    BinaryColumn,
    Buffer,
    HeadersColumn,
    Ints,
)

COMPILED: Final = kernel.COMPILED is not None

INLINE_BODY_BYTES: Final = 256 << 10
"""Maximum decompressed size, in bytes, of batches decoded on the event loop; a thread decodes larger batches."""
NULL_LENGTH: Final = -1
ABSENT_LENGTH: Final = -2


class Columns:
    """The records of a batch, one column per field; positions are indexes into `body`.

    The key of record r is `body[key_at[r] : key_at[r] + key_len[r]]`, or null if `key_len[r]` is -1.
    """

    __slots__ = (
        "body",
        "count",
        "headers_at",
        "headers_count",
        "key_at",
        "key_len",
        "offsets",
        "record_at",
        "record_len",
        "timestamps",
        "value_at",
        "value_len",
    )

    def __init__(self, body: Buffer, columns: tuple[Ints, ...]) -> None:
        self.body = body
        (
            self.offsets,
            self.timestamps,
            self.key_at,
            self.key_len,
            self.value_at,
            self.value_len,
            self.headers_at,
            self.headers_count,
            self.record_at,  # including its length field
            self.record_len,
        ) = columns
        self.count = len(self.offsets)

    def part(self, start: int, end: int) -> "Columns":
        """Returns the rows [start, end) as columns; positions are still indexes into the same `body`."""
        columns = (
            self.offsets,
            self.timestamps,
            self.key_at,
            self.key_len,
            self.value_at,
            self.value_len,
            self.headers_at,
            self.headers_count,
            self.record_at,
            self.record_len,
        )
        return Columns(self.body, tuple(column[start:end] for column in columns))

    def key(self, row: int) -> bytes | None:
        return self._cell(self.key_at[row], self.key_len[row])

    def value(self, row: int) -> bytes | None:
        return self._cell(self.value_at[row], self.value_len[row])

    def _cell(self, at: int, length: int) -> bytes | None:
        return None if length < 0 else bytes(self.body[at : at + length])


def decode_columns(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Columns:
    """Returns the columns of a whole batch (header and body). Does not check the CRC: see `check_batch`.

    An uncompressed body is a view into `batch`, which must not change while the columns are in use. Raises
    MessageTooLarge if the decompressed records exceed `max_bytes`, or must exceed it by their count alone.
    """
    header = read_header(batch)
    check_shape(batch, 0, header)
    if max_bytes < header.count * RECORD_BYTES_MIN <= header.size_bytes:
        raise MessageTooLarge(f"{header.count} records take more than the {max_bytes} bytes allowed")
    return columns_of(header, decompress_body(batch, header, max_bytes))


def decompress_body(batch: Buffer, header: BatchHeader, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Returns the decompressed body of a batch: its records."""
    body: Buffer = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    codec = header.codec
    return body if codec is Codec.NONE else decompress(codec, body, min(max_bytes, LENGTH_MAX))  # positions are int32


def columns_of(header: BatchHeader, body: Buffer) -> Columns:
    """Like `decode_columns`, for a body that is already decompressed."""
    same_timestamp = header.is_log_append_time
    columns = kernel.active.decode(
        body,
        header.count,
        header.last_offset_delta,
        header.base_offset,
        header.max_timestamp if same_timestamp else header.base_timestamp,
        same_timestamp,
    )
    return Columns(body, columns)


def header_column(columns: Columns, name: bytes) -> tuple[Ints, Ints]:
    """Returns position and length of each record's first header value of that name; length -1: null, -2: absent."""
    return kernel.active.find_header(columns.body, columns.headers_at, columns.headers_count, name)


def gather(body: Buffer, at: Ints, length: Ints) -> tuple[bytes, bytes, bytes, int]:
    """Returns these parts of `body` as an Arrow binary column: int32 offsets, data, validity bitmap, null count."""
    return kernel.active.gather([(body, at, length)])


def select_records(batch: Buffer, columns: Columns, mask: Buffer, *, keep_last_offset: bool) -> bytes | None:
    """Returns the batch with only the records whose byte in `mask` is not zero; None if there are none.

    Offsets, timestamps and producer fields do not change. `keep_last_offset`: keeps the batch's last offset, as
    compaction must (it determines the producer's last sequence); if False, the batch ends at its last record.
    """
    records, count, last, max_timestamp = kernel.active.select(
        columns.body, columns.record_at, columns.record_len, columns.timestamps, mask
    )
    if count == 0:
        return None
    header = read_header(batch)
    last_offset = header.last_offset if keep_last_offset else columns.offsets[last]
    if count == columns.count and last_offset == header.last_offset:
        return bytes(memoryview(batch)[: header.size_bytes])
    kept = assemble(
        compress(header.codec, records),
        count=count,
        attributes=header.attributes,
        base_offset=header.base_offset,
        last_offset_delta=last_offset - header.base_offset,
        leader_epoch=header.leader_epoch,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return bytes(kept)


def encode_columns(
    *,
    start: int,
    end: int,
    key: BinaryColumn | None,
    value: BinaryColumn | None,
    timestamps: Buffer | None = None,
    timestamp_ms: int = -1,
    headers: HeadersColumn | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Builds a batch from the rows [start, end) of Arrow columns; a column that is None has only nulls.

    `timestamps`: int64 milliseconds, one per row; if None, every record has `timestamp_ms`.
    """
    base_timestamp = timestamp_ms
    if timestamps is not None:
        first = memoryview(timestamps).cast("B")[8 * start : 8 * start + 8]
        base_timestamp = int.from_bytes(first, sys.byteorder, signed=True)
    records, max_timestamp = kernel.active.encode(start, end, key, value, timestamps, base_timestamp, headers)
    return assemble(
        compress(codec, records, level),
        count=end - start,
        attributes=codec | (TRANSACTIONAL if transactional else 0),
        base_offset=base_offset,
        last_offset_delta=end - start - 1,
        leader_epoch=leader_epoch,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )

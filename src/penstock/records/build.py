"""Builds batches from Record objects and reads them back, one Python object per record: for small batches."""

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from penstock.foundation.errors import InvalidRecord
from penstock.foundation.steps import Steps
from penstock.records import kernel
from penstock.records.batch import assemble
from penstock.records.columns import decode_columns
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from penstock.records.layout import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BinaryColumn,
    Buffer,
)
from penstock.records.varint import NULL_LENGTH, encode_varint

KERNEL_PAIRS_MIN: Final = 64
"""Minimum number of key-value pairs for which `build_pairs` uses the compiled loops of `kernel`: they are faster only
for many pairs."""
_CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_CONTROL_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_CONTROL_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record. `read_records` sets `offset`; of the builders only `build_batch(keep_offsets=True)` uses it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int
    offset: int = -1


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    keep_offsets: bool = False,
    log_append_time: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Builds a batch of one or more records, at consecutive offsets from `base_offset` on.

    `keep_offsets`: records keep their own, increasing offsets. A compacted batch has gaps, also after its last
    record: `last_offset_delta` preserves those. `delete_horizon_ms`: when compaction may drop tombstones (KIP-534).
    """
    rows = list(records)
    if not rows:
        raise InvalidRecord("a batch needs at least one record")
    offsets = [row.offset for row in rows] if keep_offsets else list(range(base_offset, base_offset + len(rows)))
    timestamps = [row.timestamp_ms for row in rows]
    base_timestamp = timestamps[0] if delete_horizon_ms is None else delete_horizon_ms
    body = bytearray()
    previous = base_offset - 1
    for row, offset in zip(rows, offsets, strict=True):
        if offset <= previous:
            raise InvalidRecord(f"offset {offset} follows {previous} in a batch: offsets must rise")
        previous = offset
        timestamp_delta = row.timestamp_ms - base_timestamp
        if not -(2**63) <= timestamp_delta < 2**63:
            raise InvalidRecord(f"timestamp {row.timestamp_ms} is too far from {base_timestamp} for one batch")
        _append_record(body, row, offset - base_offset, timestamp_delta)
    if last_offset_delta is None:
        last_offset_delta = previous - base_offset
    elif last_offset_delta < previous - base_offset:
        raise InvalidRecord(f"offset {previous} is past the batch's last, {base_offset + last_offset_delta}")
    return assemble(
        compress(codec, body, level),
        count=len(rows),
        attributes=codec
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (LOG_APPEND_TIME if log_append_time else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0),
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        leader_epoch=leader_epoch,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def build_pairs(
    pairs: Iterable[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    attributes: int = 0,
) -> bytearray:
    """Builds a batch from key-value pairs with one timestamp: for records that brokers write to internal topics."""
    pairs = list(pairs)
    count = len(pairs)
    if not count:
        raise InvalidRecord("a batch needs at least one record")
    if count >= KERNEL_PAIRS_MIN and kernel.active is not kernel.PURE:
        key, value = binary_column([key for key, _ in pairs]), binary_column([value for _, value in pairs])
        body, _ = kernel.active.encode(0, count, key, value, None, timestamp_ms, None)
    else:
        body = b"".join(_pair_parts(pairs))
    return assemble(
        body,
        count=count,
        attributes=attributes,
        base_offset=base_offset,
        last_offset_delta=count - 1,
        leader_epoch=-1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
    )


def _pair_parts(pairs: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
    for delta, (key, value) in enumerate(pairs):
        head = b"\x00\x00" + _varint(delta) + _varint(len(key))  # no attributes, at the batch's time
        tail = NULL_LENGTH if value is None else _varint(len(value)) + value
        yield from (_varint(len(head) + len(key) + len(tail) + 1), head, key, tail, b"\x00")  # no headers


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """Returns the values as a column in Arrow's layout."""
    present = [value or b"" for value in values]
    offsets = array("i", accumulate(map(len, present), initial=0))
    validity: bytearray | None = None
    if None in values:
        validity = bytearray(-(-len(values) // 8))
        for row, value in enumerate(values):
            if value is not None:
                validity[row >> 3] |= 1 << (row & 7)
    return BinaryColumn(offsets.tobytes(), b"".join(present), validity)


Row = tuple[bytes | None, bytes | None, Iterable[tuple[str, bytes | None]]]
"""Key, value and headers of one record."""


def build_rows(
    rows: Iterable[Row],
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Builds a batch from rows (key, value, headers) with one timestamp: for SQS and due delayed messages."""
    parts: list[bytes] = []
    count = 0
    for key, value, headers in rows:
        record = [b"\x00\x00", _varint(count), *_nullable(key), *_nullable(value), b""]  # at the batch's time
        entries = 0
        for name, text in headers:
            encoded = name.encode()
            record += (_varint(len(encoded)), encoded, *_nullable(text))
            entries += 1
        record[6] = _varint(entries)
        parts.append(_varint(sum(map(len, record))))
        parts += record
        count += 1
    if not count:
        raise InvalidRecord("a batch needs at least one record")
    return assemble(
        b"".join(parts),
        count=count,
        attributes=0,
        base_offset=0,
        last_offset_delta=count - 1,
        leader_epoch=-1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def build_row_steps(
    row: Row,
    timestamp_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> Steps[bytearray]:
    """Like `build_rows`, for one record with up to hundreds of thousands of headers; interruptible (see Steps)."""
    key, value, headers = row
    chunks: list[bytes] = []
    parts: list[bytes] = []
    entries = 0
    for name, text in headers:
        encoded = name.encode()
        parts += (_varint(len(encoded)), encoded, *_nullable(text))
        entries += 1
        if entries % HEADERS_AT_ONCE == 0:
            chunks.append(b"".join(parts))
            parts.clear()
            yield
    start = b"".join([b"\x00\x00", _varint(0), *_nullable(key), *_nullable(value), _varint(entries)])
    record = b"".join([start, *chunks, *parts])
    return assemble(
        _varint(len(record)) + record,
        count=1,
        attributes=0,
        base_offset=0,
        last_offset_delta=0,
        leader_epoch=-1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


HEADERS_AT_ONCE: Final = 256
_SMALL: Final = tuple(encode_varint(number) for number in range(4096))


def _varint(number: int) -> bytes:
    return _SMALL[number] if number < len(_SMALL) else encode_varint(number)


def _append_record(body: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    parts = [
        b"\x00",  # attributes, unused
        encode_varint(timestamp_delta),
        encode_varint(offset_delta),
        *_nullable(record.key),
        *_nullable(record.value),
        encode_varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts += _nullable(name.encode())
        parts += _nullable(value)
    body += encode_varint(sum(map(len, parts)))
    body += b"".join(parts)


def _nullable(data: bytes | None) -> tuple[bytes, bytes]:
    return (NULL_LENGTH, b"") if data is None else (_varint(len(data)), data)


def read_records(batch: Buffer, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Returns all records of a batch. Header names with invalid UTF-8 get replacement characters."""
    columns = decode_columns(batch, max_bytes)
    body = columns.body
    entries = zip(*kernel.active.list_headers(body, columns.headers_at, columns.headers_count), strict=True)
    records = []
    for row in range(columns.count):
        headers = tuple(_read_header(body, *next(entries)) for _ in range(columns.headers_count[row]))
        records.append(
            Record(
                key=columns.key(row),
                value=columns.value(row),
                headers=headers,
                timestamp_ms=columns.timestamps[row],
                offset=columns.offsets[row],
            )
        )
    return records


def _read_header(
    body: Buffer, name_at: int, name_len: int, value_at: int, value_len: int
) -> tuple[str, bytes | None]:
    name = bytes(body[name_at : name_at + name_len]).decode(errors="replace")
    return name, None if value_len < 0 else bytes(body[value_at : value_at + value_len])


def control_marker(
    *,
    commit: bool,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
) -> bytearray:
    """Builds a transaction marker (commit or abort), a control batch for one partition (KIP-98)."""
    return build_pairs(
        [_control_pair(_COMMIT if commit else _ABORT, coordinator_epoch)],
        timestamp_ms,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


class Marker(NamedTuple):
    """The content of a transaction marker."""

    committed: bool
    coordinator_epoch: int


def read_marker(batch: Buffer) -> Marker | None:
    """Returns the content of a transaction marker; None for other control batches."""
    for record in read_records(batch):
        if record.key is None or record.value is None or len(record.key) < _CONTROL_KEY.size:
            continue
        _, kind = _CONTROL_KEY.unpack_from(record.key)
        if kind in (_ABORT, _COMMIT) and len(record.value) >= _CONTROL_VALUE.size:
            return Marker(kind == _COMMIT, _CONTROL_VALUE.unpack_from(record.value)[1])
    return None


def skip_marker(offset: int, timestamp_ms: int, leader_epoch: int = -1) -> bytearray:
    """Builds a control batch that moves consumers past `offset` and delivers nothing: a commit marker that ends no
    transaction. An empty batch would not do: some clients do not advance past it, others loop on it."""
    marker = [Record(key=_SKIP_PAIR[0], value=_SKIP_PAIR[1], timestamp_ms=timestamp_ms)]
    return build_batch(marker, base_offset=offset, leader_epoch=leader_epoch, control=True)


def _control_pair(kind: int, coordinator_epoch: int) -> tuple[bytes, bytes]:
    return _CONTROL_KEY.pack(_CONTROL_VERSION, kind), _CONTROL_VALUE.pack(_CONTROL_VERSION, coordinator_epoch)


_SKIP_PAIR: Final = _control_pair(_COMMIT, 0)

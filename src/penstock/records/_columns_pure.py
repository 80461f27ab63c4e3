"""Loops over the records of a batch (decode, select, encode), in pure Python: see `kernel.Kernel`.

The compiled counterpart is `_columns.pyx`.
"""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import compress

from penstock.foundation.errors import CorruptMessage, MessageTooLarge
from penstock.records._columns_filter_pure import (
    both,
    either,
    match_flag,
    match_ints,
    match_null,
    match_numbers,
    match_pieces,
    match_text,
    match_texts,
)
from penstock.records._columns_schemas_pure import list_schema_ids, match_schema_ids
from penstock.records._columns_write_pure import encode, encode_rows, piece, spread
from penstock.records.layout import (
    BROKER_ONLY,
    CODEC_MASK,
    CODEC_MAX,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    Buffer,
    Ints,
)
from penstock.records.varint import decode_varint, decode_varlong

__all__ = [
    "both",
    "client_header",
    "count_records",
    "decode",
    "either",
    "encode",
    "encode_rows",
    "find_header",
    "gather",
    "list_headers",
    "list_schema_ids",
    "match_flag",
    "match_ints",
    "match_null",
    "match_numbers",
    "match_pieces",
    "match_schema_ids",
    "match_text",
    "match_texts",
    "new_key_table",
    "pack_entries",
    "select",
    "sort_entries",
    "spread",
]

RECORD_BYTES_MIN = 6  # attributes, two deltas, two lengths and the number of headers
ARROW_BYTES_MAX = 2**31 - 1  # the range of int32 offsets
INT64_MIN = -(2**63)
INT32_MAX = 2**31 - 1
ENTRY_BYTES = 32  # of a delayed message: see delays/entries.py
ENTRY_KEY_BYTES = 10
ENTRY_VALUE_BYTES = 24


def count_records(buf: Buffer, start: int, end: int) -> int:
    if not 0 <= start <= end <= len(buf):
        raise ValueError(f"range {start} to {end} lies outside of {len(buf)} bytes")
    data = bytes(memoryview(buf)[start:end])
    size = len(data)
    at = count = 0
    try:
        while at < size:
            length, at = decode_varint(data, at)
            if length < RECORD_BYTES_MIN:
                return -1
            at += length
            count += 1
    except (IndexError, CorruptMessage):
        return -1
    return count if at == size else -1


def client_header(buf: Buffer) -> tuple[int, ...] | None:
    size = len(buf)
    if size < HEADER_BYTES:
        return None
    fields = HEADER.unpack_from(buf)
    _, length, _, magic, _, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, count = fields
    if (
        magic != MAGIC
        or LENGTH_END + length != size
        or count <= 0
        or last_offset_delta != count - 1
        or attributes & BROKER_ONLY
        or (producer_id >= 0 and (epoch < 0 or sequence < 0))
        or (producer_id < 0 and (producer_id != -1 or attributes & TRANSACTIONAL))
    ):
        return None
    if attributes & CODEC_MASK:
        return fields if attributes & CODEC_MASK <= CODEC_MAX else None
    return fields if count_records(buf, HEADER_BYTES, size) == count else None


def decode(
    body: Buffer,
    count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    same_timestamp: bool,
) -> tuple[Ints, ...]:
    # The count comes from the sender: allocate no more rows than the body can contain.
    if not 0 <= count <= len(body) // (1 + RECORD_BYTES_MIN):
        raise CorruptMessage(f"{count} records cannot be in {len(body)} bytes")
    data = bytes(body)
    rows: list[int] = []
    at = 0
    offset_delta = -1
    try:
        for _ in range(count):
            record_at = at
            length, at = decode_varint(data, at)
            end = at + length
            if length < RECORD_BYTES_MIN or end > len(data):
                raise CorruptMessage(f"record at byte {record_at} of {len(data)} says it has {length} bytes")
            timestamp_delta, at = decode_varlong(data, at + 1)
            previous = offset_delta
            offset_delta, at = decode_varint(data, at)
            key_len, key_at = decode_varint(data, at)
            at = key_at + key_len if key_len > 0 else key_at
            value_len, value_at = decode_varint(data, at)
            at = value_at + value_len if value_len > 0 else value_at
            headers_count, at = decode_varint(data, at)
            headers_at = at
            if headers_count:
                at = _skip_headers(data, at, headers_count)
            if at != end or key_len < -1 or value_len < -1 or not previous < offset_delta <= last_offset_delta:
                raise CorruptMessage(f"record at byte {record_at} does not agree with its lengths or offsets")
            timestamp = base_timestamp if same_timestamp else base_timestamp + timestamp_delta
            rows += (
                base_offset + offset_delta,
                timestamp,
                key_at,
                key_len,
                value_at,
                value_len,
                headers_at,
                headers_count,
                record_at,
                end - record_at,
            )
    except IndexError as error:
        raise CorruptMessage(f"records are cut off after {len(data)} bytes") from error
    if at != len(data):
        raise CorruptMessage(f"{count} records end at byte {at} of {len(data)}")
    try:
        return tuple(memoryview(array("qqiiiiiiii"[n], rows[n::10])) for n in range(10))
    except OverflowError as error:
        raise CorruptMessage(f"offsets or timestamps from {base_offset}, {base_timestamp} on overflow") from error


def _skip_headers(data: bytes, at: int, count: int) -> int:
    if count < 0:
        raise CorruptMessage(f"record has {count} headers")
    for _ in range(count):
        _, _, value_at, value_len = _header(data, at)
        at = value_at + max(value_len, 0)
    return at


def _header(data: bytes, at: int) -> tuple[int, int, int, int]:
    name_len, name_at = decode_varint(data, at)
    if name_len < 0:
        raise CorruptMessage(f"header at byte {at} has a name of {name_len} bytes")
    value_len, value_at = decode_varint(data, name_at + name_len)
    if value_len < -1:
        raise CorruptMessage(f"header at byte {at} has a value of {value_len} bytes")
    return name_at, name_len, value_at, value_len


def _headers(data: bytes, at: int, count: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields one record's headers as positions and lengths; raises if one is outside `data` (untrusted input)."""
    if not 0 <= at <= len(data) or not 0 <= count <= (len(data) - at) // 2:
        raise CorruptMessage(f"{count} headers at byte {at} of {len(data)}")
    try:
        for _ in range(count):
            header = _header(data, at)
            at = header[2] + max(header[3], 0)
            if at > len(data):
                raise IndexError(at)
            yield header
    except IndexError as error:
        raise CorruptMessage(f"headers are cut off after {len(data)} bytes") from error


def find_header(body: Buffer, at: Ints, count: Ints, name: Buffer) -> tuple[Ints, Ints]:
    data, wanted = bytes(body), bytes(name)
    value_at, value_len = array("i"), array("i")
    for headers_at, headers_count in zip(at, count, strict=True):
        found = (0, -2)
        for start, length, *value in _headers(data, headers_at, headers_count):
            if length == len(wanted) and data.startswith(wanted, start):
                found = (value[0], value[1])
                break
        value_at.append(found[0])
        value_len.append(found[1])
    return memoryview(value_at), memoryview(value_len)


def list_headers(body: Buffer, at: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    data = bytes(body)
    columns = array("i"), array("i"), array("i"), array("i")
    for headers_at, headers_count in zip(at, count, strict=True):
        for header in _headers(data, headers_at, headers_count):
            for column, item in zip(columns, header, strict=True):
                column.append(item)
    names_at, names_len, values_at, values_len = (memoryview(column) for column in columns)
    return names_at, names_len, values_at, values_len


def gather(parts: Sequence[tuple[Buffer, Ints, Ints]]) -> tuple[bytes, bytes, bytes, int]:
    offsets = array("i", [0])
    data = bytearray()
    validity = bytearray((sum(len(at) for _, at, _ in parts) + 7) // 8)
    row = nulls = 0
    for body, at, length in parts:
        view = memoryview(body)
        for start, size in zip(at, length, strict=True):
            if size < 0:
                nulls += 1
            else:
                data += piece(view, start, size)
                validity[row >> 3] |= 1 << (row & 7)
            row += 1
            if len(data) > ARROW_BYTES_MAX:
                raise MessageTooLarge(f"column of {len(data)} bytes: Arrow's offsets reach {ARROW_BYTES_MAX}")
            offsets.append(len(data))
    return offsets.tobytes(), bytes(data), bytes(validity), nulls


def select(body: Buffer, at: Ints, length: Ints, timestamps: Ints, mask: Buffer) -> tuple[bytes, int, int, int]:
    if not len(at) == len(length) == len(timestamps) == len(mask):
        raise ValueError(f"mask of {len(mask)} bytes for {len(at)} records")
    view = memoryview(body)
    chosen = list(compress(range(len(mask)), mask))
    records = b"".join(piece(view, at[row], length[row]) for row in chosen)
    last = chosen[-1] if chosen else -1
    return records, len(chosen), last, max((timestamps[row] for row in chosen), default=INT64_MIN)


def sort_entries(entries: bytearray) -> None:
    if len(entries) % ENTRY_BYTES:
        raise ValueError(f"{len(entries)} bytes are no whole number of entries")
    data = bytes(entries)
    pieces = [data[at : at + ENTRY_BYTES] for at in range(0, len(data), ENTRY_BYTES)]
    pieces.sort(key=lambda entry: entry[:16])
    entries[:] = b"".join(pieces)


def pack_entries(batch: Buffer, kind: bytes) -> tuple[bytes, list[tuple[bytes, bytes | None]]]:
    if len(batch) < HEADER_BYTES or len(kind) != 2:
        raise CorruptMessage(f"{len(batch)} bytes are no batch")
    fields = HEADER.unpack_from(batch)
    body = bytes(batch)[HEADER_BYTES:]
    offsets, _, key_at, key_len, value_at, value_len, *_ = decode(body, fields[-1], INT32_MAX, fields[0], 0, True)
    entries, others = [], []
    for row, offset in enumerate(offsets):
        key = body[key_at[row] : key_at[row] + max(0, key_len[row])]
        value = None if value_len[row] < 0 else body[value_at[row] : value_at[row] + value_len[row]]
        if len(key) == ENTRY_KEY_BYTES and key[:2] == kind:
            if value is not None and len(value) >= ENTRY_VALUE_BYTES:
                entries.append(
                    value[1:9] + key[2:] + value[:1] + value[9:16] + offset.to_bytes(8, "big", signed=True)
                )
        elif key_len[row] >= 0:
            others.append((key, value))
    return b"".join(entries), others


class KeyTable:
    """The last offset of every key, for log compaction; a key is stored as a keyed digest of 128 bits."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def _digests(self, body: Buffer, key_at: Ints, key_len: Ints, offsets: Ints) -> Iterator[bytes | None]:
        if len(key_at) != len(key_len) or len(key_at) != len(offsets):
            raise ValueError("columns of different lengths")
        view = memoryview(body)
        for at, length, offset in zip(key_at, key_len, offsets, strict=True):
            if length > 0 and (at < 0 or at > len(view) - length):
                raise CorruptMessage("a key lies outside its body")
            if offset < 0:
                raise CorruptMessage("an offset is negative")
            yield None if length < 0 else blake2b(view[at : at + length], digest_size=16, key=self._secret).digest()

    def note(self, body: Buffer, key_at: Ints, key_len: Ints, offsets: Ints) -> None:
        for digest, offset in zip(list(self._digests(body, key_at, key_len, offsets)), offsets, strict=True):
            if digest is not None:
                self._offsets[digest] = offset

    def mask(
        self, body: Buffer, key_at: Ints, key_len: Ints, value_len: Ints, offsets: Ints, drop_tombstones: bool
    ) -> bytearray:
        if len(value_len) != len(offsets):
            raise ValueError("columns of different lengths")
        digests = self._digests(body, key_at, key_len, offsets)
        return bytearray(
            digest is not None and not (drop_tombstones and value < 0) and offset >= self._offsets.get(digest, -1)
            for digest, value, offset in zip(digests, value_len, offsets, strict=True)
        )


def new_key_table(secret: bytes) -> KeyTable:
    return KeyTable(secret)

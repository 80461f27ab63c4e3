"""Encodes rows of Arrow columns as records, in pure Python: see `_columns_write.pxi` and `_columns_rows.pxi`."""

from array import array
from collections.abc import Sequence
from typing import Literal

from penstock.foundation.errors import InvalidRecord, MessageTooLarge
from penstock.records.layout import BinaryColumn, Buffer, HeadersColumn, IntColumn, Ints
from penstock.records.varint import NULL_LENGTH, encode_varint

ARROW_BYTES_MAX = 2**31 - 1  # the range of int32 offsets
BODY_BYTES_MAX = 2**31 - 1 - 49  # a batch's length field, less the header fields that it counts
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def piece(view: memoryview, start: int, size: int) -> memoryview:
    """Returns `size` bytes of `view` from `start` on. Raises ValueError if they are out of range."""
    if start < 0 or size < 0 or size > len(view) - start:
        raise ValueError(f"{size} bytes at {start} lie outside of {len(view)}")
    return view[start : start + size]


def encode(
    start: int,
    end: int,
    key: BinaryColumn | None,
    value: BinaryColumn | None,
    timestamps: Buffer | None,
    base_timestamp: int,
    headers: HeadersColumn | None,
) -> tuple[bytes, int]:
    times = None if timestamps is None else _items(timestamps, "q")
    if not 0 <= start < end or (times is not None and end > len(times)):
        raise ValueError(f"rows {start} to {end} are none, or more than there are timestamps")
    columns = _Columns(key, value, times, base_timestamp, headers)
    out = bytearray()
    for row in range(start, end):
        record = columns.record(row, row - start)
        out += encode_varint(len(record))
        out += record
        if len(out) > BODY_BYTES_MAX:
            raise MessageTooLarge(f"rows {start} to {end} take more than {BODY_BYTES_MAX} bytes: send fewer")
    return bytes(out), base_timestamp if times is None else max(times[start:end])


class _Columns:
    """The Arrow columns from which records are encoded."""

    def __init__(
        self,
        key: BinaryColumn | None,
        value: BinaryColumn | None,
        times: memoryview | None,
        base_timestamp: int,
        headers: HeadersColumn | None,
    ) -> None:
        self._keys, self._values, self._entries = _Cells(key), _Cells(value), _Headers(headers)
        self._times = times
        self._base_timestamp = base_timestamp

    def record(self, row: int, offset_delta: int) -> bytes:
        """Returns the encoded record of a row, without its length field."""
        delta = 0 if self._times is None else self._times[row] - self._base_timestamp
        if not INT64_MIN <= delta <= INT64_MAX:
            raise InvalidRecord(f"row {row} has a timestamp too far from {self._base_timestamp}")
        return b"".join(
            (
                b"\x00",
                encode_varint(delta),
                encode_varint(offset_delta),
                _nullable(self._keys.at(row)),
                _nullable(self._values.at(row)),
                self._entries.encoded(row),
            )
        )


class _Rows:
    """The offsets and the validity bitmap of an Arrow column. If `column` is None, all rows are null."""

    def __init__(self, column: BinaryColumn | HeadersColumn | None) -> None:
        self._offsets = None if column is None else _items(column.offsets, "i")
        self._validity = None if column is None or column.validity is None else _items(column.validity, "B")
        self._first = 0 if column is None else column.offset

    def span(self, row: int) -> tuple[int, int] | None:
        """Returns offsets[row] and offsets[row + 1]; None if the row is null."""
        if self._offsets is None:
            return None
        row += self._first
        if not 0 <= row < len(self._offsets) - 1:
            raise ValueError(f"row {row} of a column of {len(self._offsets) - 1}")
        if self._validity is not None:
            if row >= 8 * len(self._validity):
                raise ValueError(f"row {row} of a validity bitmap of {len(self._validity)} bytes")
            if not self._validity[row >> 3] >> (row & 7) & 1:
                return None
        return self._offsets[row], self._offsets[row + 1]


class _Cells(_Rows):
    def __init__(self, column: BinaryColumn | None) -> None:
        super().__init__(column)
        self._data = memoryview(b"") if column is None else _items(column.data, "B")

    def at(self, row: int) -> memoryview | None:
        span = self.span(row)
        return None if span is None else piece(self._data, span[0], span[1] - span[0])


class _Headers(_Rows):
    def __init__(self, headers: HeadersColumn | None) -> None:
        super().__init__(headers)
        self._names = _Cells(None if headers is None else headers.names)
        self._values = _Cells(None if headers is None else headers.values)

    def encoded(self, row: int) -> bytes:
        first, last = self.span(row) or (0, 0)
        if not 0 <= first <= last:
            raise ValueError(f"row {row} has the headers {first} to {last}")
        out = bytearray(encode_varint(last - first))
        for entry in range(first, last):
            name = self._names.at(entry)
            if name is None:
                raise InvalidRecord(f"row {row} has a header without a name")
            out += _nullable(name)
            out += _nullable(self._values.at(entry))
        return bytes(out)


def _nullable(cell: memoryview | None) -> bytes:
    return NULL_LENGTH if cell is None else encode_varint(len(cell)) + cell


def _items(buf: Buffer, item: Literal["B", "i", "q"]) -> memoryview:
    view = memoryview(buf).cast("B")
    size = array(item).itemsize
    return view[: len(view) // size * size].cast(item)


# -- rows by partition


def murmur2(data: memoryview) -> int:
    """Returns Kafka's 32-bit MurmurHash2 of `data`; see client/partitioner.py."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    whole = length & ~3
    h = 0x9747B28C ^ length
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def spread(
    count: int,
    rows: Ints | None,
    key: BinaryColumn | None,
    wanted: IntColumn | None,
    partitions: int,
    keyless: int,
) -> tuple[Ints, Ints]:
    chosen: Sequence[int] = range(count) if rows is None else rows
    if not 0 <= keyless < partitions or not 0 <= len(chosen) <= ARROW_BYTES_MAX:
        raise ValueError(f"{count} rows for {partitions} partitions, those without a key for {keyless}")
    keys, numbers = _Cells(key), _Numbers(wanted)
    found: list[list[int]] = [[] for _ in range(partitions)]
    for row in chosen:
        partition = numbers.at(row)
        if partition is None:
            cell = keys.at(row)
            partition = keyless if cell is None else (murmur2(cell) & 0x7FFFFFFF) % partitions
        elif not 0 <= partition < partitions:
            raise InvalidRecord(f"a row asks for partition {partition} of {partitions}")
        found[partition].append(row)
    sorted_rows, ends = array("i"), array("i")
    for each in found:
        sorted_rows.extend(each)
        ends.append(len(sorted_rows))
    return memoryview(sorted_rows), memoryview(ends)


class _Numbers:
    """A nullable int32 column in Arrow's layout. If `column` is None, all rows are null."""

    def __init__(self, column: IntColumn | None) -> None:
        self._data = None if column is None else _items(column.data, "i")
        self._validity = None if column is None or column.validity is None else _items(column.validity, "B")
        self._first = 0 if column is None else column.offset

    def at(self, row: int) -> int | None:
        if self._data is None:
            return None
        row += self._first
        if not 0 <= row < len(self._data):
            raise ValueError(f"row {row} of a column of {len(self._data)}")
        if self._validity is not None:
            if row >= 8 * len(self._validity):
                raise ValueError(f"row {row} of a validity bitmap of {len(self._validity)} bytes")
            if not self._validity[row >> 3] >> (row & 7) & 1:
                return None
        value: int = self._data[row]
        return value


def encode_rows(
    rows: Ints,
    start: int,
    end: int,
    first_delta: int,
    room_bytes: int,
    key: BinaryColumn | None,
    value: BinaryColumn | None,
    timestamps: Buffer | None,
    base_timestamp: int,
    headers: HeadersColumn | None,
) -> tuple[bytes, int, int]:
    times = None if timestamps is None else _items(timestamps, "q")
    if not 0 <= start < end <= len(rows) or first_delta < 0:
        raise ValueError(f"rows {start} to {end} are none, or more than there are")
    columns = _Columns(key, value, times, base_timestamp, headers)
    room_bytes = min(room_bytes, BODY_BYTES_MAX)
    out = bytearray()
    taken, max_timestamp = 0, INT64_MIN
    for row in rows[start:end]:
        if row < 0 or (times is not None and row >= len(times)):
            raise ValueError(f"there is no row {row}")
        record = columns.record(row, first_delta + taken)
        size = encode_varint(len(record))
        if len(out) + len(size) + len(record) > room_bytes:
            break
        out += size
        out += record
        max_timestamp = max(max_timestamp, base_timestamp if times is None else times[row])
        taken += 1
    return bytes(out), taken, max_timestamp

"""Converts record batches to and from Arrow, a column at a time. pyarrow comes with `penstock[spark]`."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from penstock.foundation.errors import InvalidTimestamp
from penstock.records import kernel
from penstock.records.batch import BatchHeader, read_header
from penstock.records.batch_draft import RowColumns
from penstock.records.columns import Columns, decode_columns, encode_columns
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from penstock.records.layout import BinaryColumn, Buffer, HeadersColumn, IntColumn, Ints

if TYPE_CHECKING:
    import pyarrow as pa

OFFSET_MAX: Final = 2**63 - 1

Part = tuple[Buffer, Ints, Ints]


def to_arrow(
    batches: Iterable[Buffer],
    *,
    include_headers: bool = False,
    start_offset: int = 0,
    end_offset: int = OFFSET_MAX,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> pa.RecordBatch:
    """Returns the records at [start_offset, end_offset) of whole batches, in the columns of Spark's Kafka source.

    Omits control batches. `max_bytes` limits each decompressed batch; Arrow limits each column to 2 GiB.
    """
    import pyarrow as pa

    rows = ArrowRows()
    for batch in batches:
        header = read_header(batch)
        if header.is_control or header.last_offset < start_offset or header.base_offset >= end_offset:
            continue
        rows.add(batch, header, start_offset=start_offset, end_offset=end_offset, max_bytes=max_bytes)
    names = ["key", "value", "offset", "timestamp", "timestamp_type"]
    if include_headers:
        names.append("headers")
    return pa.RecordBatch.from_arrays([rows.column(name) for name in names], names=names)


class ArrowRows:
    """Decoded rows of several batches; `column` builds an Arrow column only when asked for it."""

    def __init__(self) -> None:
        self._chosen: list[_Rows] = []
        self.count = 0
        self.body_bytes = 0
        """Total size, in bytes, of the decompressed batches."""

    def add(
        self,
        batch: Buffer,
        header: BatchHeader,
        *,
        start_offset: int = 0,
        end_offset: int = OFFSET_MAX,
        max_bytes: int = DECOMPRESSED_BYTES_MAX,
    ) -> None:
        """Adds those records of a whole batch that are at offsets [start_offset, end_offset)."""
        rows = _Rows(decode_columns(batch, max_bytes), header.is_log_append_time, start_offset, end_offset)
        self._chosen.append(rows)
        self.count += rows.count
        self.body_bytes += len(rows.columns.body)

    def column(self, name: str) -> pa.Array:
        """Returns one column: `key`, `value`, `offset`, `timestamp` (ms), `timestamp_type` or `headers`."""
        import pyarrow as pa

        chosen = self._chosen
        match name:
            case "key":
                return _binary([rows.slices(rows.columns.key_at, rows.columns.key_len) for rows in chosen])
            case "value":
                return _binary([rows.slices(rows.columns.value_at, rows.columns.value_len) for rows in chosen])
            case "offset":
                return _ints(pa.int64(), [rows.cut(rows.columns.offsets) for rows in chosen])
            case "timestamp":
                return _ints(pa.int64(), [rows.cut(rows.columns.timestamps) for rows in chosen])
            case "timestamp_type":
                return _ints(pa.int32(), [array("i", [rows.log_append_time]) * rows.count for rows in chosen])
            case "headers":
                return _headers(chosen)
        raise ValueError(f"there is no column {name!r}")


class _Rows:
    """The columns of a batch, and the range of its rows that are within the requested offsets."""

    __slots__ = ("columns", "first", "last", "log_append_time")

    def __init__(self, columns: Columns, log_append_time: bool, start_offset: int, end_offset: int) -> None:
        self.columns = columns
        self.log_append_time = log_append_time
        self.first = bisect_left(columns.offsets, start_offset)
        self.last = bisect_left(columns.offsets, end_offset)

    @property
    def count(self) -> int:
        return self.last - self.first

    def cut(self, column: Ints) -> Ints:
        return column[self.first : self.last]

    def slices(self, at: Ints, length: Ints) -> Part:
        return self.columns.body, self.cut(at), self.cut(length)


def _ints(kind: pa.DataType, pieces: Iterable[Ints | array[int]]) -> pa.Array:
    import pyarrow as pa

    data = b"".join(pieces)
    return pa.Array.from_buffers(kind, len(data) * 8 // kind.bit_width, [None, pa.py_buffer(data)])


def _binary(parts: list[Part]) -> pa.Array:
    import pyarrow as pa

    offsets, data, validity, nulls = kernel.active.gather(parts)
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) // 4 - 1, buffers, nulls)


def _headers(chosen: list[_Rows]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    names: list[Part] = []
    values: list[Part] = []
    counts: list[Ints | array[int]] = [array("i", [0])]
    for rows in chosen:
        body, at, count = rows.slices(rows.columns.headers_at, rows.columns.headers_count)
        name_at, name_len, value_at, value_len = kernel.active.list_headers(body, at, count)
        names.append((body, name_at, name_len))
        values.append((body, value_at, value_len))
        counts.append(count)
    entries = pa.StructArray.from_arrays([_text(_binary(names)), _binary(values)], names=["key", "value"])
    return pa.ListArray.from_arrays(pc.cumulative_sum(_ints(pa.int32(), counts)), entries)


def _text(names: pa.Array) -> pa.Array:
    """Returns header names as a string column; replaces invalid UTF-8, as Java clients do."""
    import pyarrow as pa

    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def from_arrow(
    rows: pa.RecordBatch,
    *,
    start: int = 0,
    end: int | None = None,
    timestamp_ms: int = -1,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Builds a batch from the rows [start, end): columns `value`, and if present `key`, `timestamp`, `headers`.

    Key and value may be binary or string. Timestamps are milliseconds or Arrow's type; nulls become `timestamp_ms`.
    """
    columns = _columns(rows, _times(rows, timestamp_ms), timestamp_ms)
    return encode_columns(
        start=start,
        end=len(rows) if end is None else end,
        key=columns.key,
        value=columns.value,
        timestamps=columns.timestamps,
        timestamp_ms=timestamp_ms,
        headers=columns.headers,
        codec=codec,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def row_columns(rows: pa.RecordBatch, *, timestamp_ms: int) -> RowColumns:
    """Converts rows, with the same columns that `from_arrow` accepts, to the input of `BatchDraft.take`.

    Timestamps may also be seconds (as floats). Raises InvalidTimestamp for a timestamp before 1970.
    """
    import pyarrow.compute as pc

    times = _times(rows, timestamp_ms)
    least = 0 if times is None else pc.min(times).as_py() or 0
    if least < 0:
        raise InvalidTimestamp(
            f"a row has the timestamp {least} ms, before 1970; leave it null for the time of writing"
        )
    return _columns(rows, times, timestamp_ms)


def int_column(column: pa.Array) -> IntColumn:
    """Wraps the buffers of an int32 Arrow array as an IntColumn, which the loops in `kernel` read. Copies no data."""
    validity, data = column.buffers()
    return IntColumn(
        data=_view(data), validity=None if validity is None else memoryview(validity), offset=column.offset
    )


def binary_column(column: pa.Array) -> BinaryColumn:
    """Wraps the buffers of an array of binary or string values. Copies no data, if the type is binary or string."""
    import pyarrow as pa

    column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    return BinaryColumn(
        offsets=_view(offsets),
        data=_view(data),
        validity=None if validity is None else memoryview(validity),
        offset=column.offset,
    )


def _columns(rows: pa.RecordBatch, times: pa.Array | None, timestamp_ms: int) -> RowColumns:
    headers = _column(rows, "headers")
    key = _column(rows, "key")
    return RowColumns(
        key=None if key is None else binary_column(key),
        value=binary_column(rows.column("value")),
        timestamps=None if times is None else _view(times.buffers()[1])[8 * times.offset :],
        timestamp_ms=timestamp_ms,
        headers=None if headers is None else _headers_column(headers),
    )


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    return rows.column(name) if name in rows.schema.names else None


def _times(rows: pa.RecordBatch, timestamp_ms: int) -> pa.Array | None:
    """Returns the timestamps in milliseconds, nulls replaced by `timestamp_ms`; None if there is no such column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _column(rows, "timestamp")
    if column is None:
        return None
    if pa.types.is_floating(column.type):
        column = pc.floor(pc.multiply(column, 1000.0)).cast(pa.int64(), safe=False)
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)  # Spark has microseconds
    return pc.fill_null(column.cast(pa.int64()), timestamp_ms)


def _headers_column(column: pa.Array) -> HeadersColumn:
    import pyarrow as pa

    column = column.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])))
    validity, offsets = column.buffers()[:2]
    # All entries, even if the lists are sliced; flattened, a null entry has a null name.
    names, values = column.values.flatten()
    return HeadersColumn(
        offsets=_view(offsets),
        validity=None if validity is None else memoryview(validity),
        offset=column.offset,
        names=binary_column(names),
        values=binary_column(values),
    )


def _view(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer)

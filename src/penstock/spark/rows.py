"""Converts record batches into Arrow batches with the columns of Spark's Kafka source, without per-record objects."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.foundation.errors import CorruptMessage
from penstock.records.arrow import ArrowRows
from penstock.records.batch import check_batch
from penstock.spark.freed_memory import keep_freed_memory
from penstock.spark.range_fetch import FetchedBatches, FetchPlan, RangeFetcher, corrupt_at

BATCH_BYTES: Final = 4 << 20
"""Number of record bytes at which an Arrow batch is emitted. A large record batch can make an Arrow batch larger."""
BATCH_ROWS: Final = 32_768

_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}
"""Arrow type of each column that the data source can return, in the column order of Spark's Kafka source."""


def read_rows(plan: FetchPlan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of an offset range as Arrow batches with that schema, whose columns are some of TYPES; only
    what may be null can differ."""
    keep_freed_memory()
    batcher = _ArrowBatcher(plan, schema)
    with RangeFetcher(plan) as fetches:
        for fetched in fetches:
            yield from batcher.add(fetched)
    yield from batcher.flush()


class _ArrowBatcher:
    """Collects record batches of any size into Arrow batches of about BATCH_BYTES."""

    def __init__(self, plan: FetchPlan, schema: pa.Schema) -> None:
        self._plan = plan
        self._schema = schema
        self._rows = ArrowRows()

    def add(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        offset_range = self._plan.offset_range
        for at, header in fetched.visible():
            if header.base_offset >= offset_range.end:
                continue
            try:
                if self._plan.settings.check_crcs:
                    check_batch(fetched.data, at, header)
                data = fetched.data[at : at + header.size_bytes]
                self._rows.add(data, header, start_offset=fetched.start, end_offset=offset_range.end)
            except CorruptMessage as error:
                raise corrupt_at(offset_range, header.base_offset, error) from error
            if self._rows.body_bytes >= BATCH_BYTES or self._rows.count >= BATCH_ROWS:
                yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields the collected rows as an Arrow batch, if there are any."""
        rows, self._rows = self._rows, ArrowRows()
        if rows.count:
            arrays = [self._column(rows, field.name).cast(field.type) for field in self._schema]  # copies nothing
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, rows: ArrowRows, name: str) -> pa.Array:
        match name:
            case "topic":
                return pa.repeat(self._plan.offset_range.tp.topic, rows.count)
            case "partition":
                return pa.repeat(pa.scalar(self._plan.offset_range.tp.partition, pa.int32()), rows.count)
            case "timestamp":
                return _microseconds(rows.column("timestamp"))
            case "timestampType":
                return rows.column("timestamp_type")
            case "headers":
                return _null_where_empty(rows.column("headers"))
        return rows.column(name)


def _microseconds(milliseconds: pa.Array) -> pa.Array:
    """Converts timestamps to microseconds; a time that Spark cannot represent becomes null."""
    try:
        return pc.multiply_checked(milliseconds, 1000).cast(TYPES["timestamp"])
    except pa.ArrowInvalid:
        limit = 2**63 // 1000
        in_range = pc.and_(pc.greater(milliseconds, -limit), pc.less(milliseconds, limit))
        kept = pc.if_else(in_range, milliseconds, pa.scalar(None, pa.int64()))
        return pc.multiply_checked(kept, 1000).cast(TYPES["timestamp"])


def _null_where_empty(headers: pa.ListArray) -> pa.ListArray:
    """Replaces empty header lists by null, as in Spark's Kafka source."""
    empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=_HEADERS, mask=empty)

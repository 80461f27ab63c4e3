"""Batches as the rows of Spark's Kafka source: Arrow columns, without a Python object for a record."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.foundation.errors import CorruptMessage
from penstock.records.arrow import ArrowRows
from penstock.records.batch import check_batch
from penstock.spark.errors import BadSchema
from penstock.spark.span_fetch import Answer, Fetching, FetchPlan, damaged

BATCH_BYTES: Final = 4 << 20
"""What the records of one Arrow batch take, unless a single batch of the log takes more."""
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
"""The columns of Spark's Kafka source, in its order."""
SCHEMA: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_SCHEMA: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def read_rows(plan: FetchPlan, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The rows of a span, a few thousand at a time."""
    cutter = _Cutter(plan, columns)
    with Fetching(plan) as answers:
        for answer in answers:
            yield from cutter.take(answer)
    yield from cutter.rest()


class _Cutter:
    """Gathers batches of the log, however small or large, into Arrow batches of a handy size."""

    def __init__(self, plan: FetchPlan, columns: tuple[str, ...]) -> None:
        self._plan = plan
        self._columns = columns
        self._schema = pa.schema([pa.field(name, TYPES[name]) for name in columns])
        self._rows = ArrowRows()

    def take(self, answer: Answer) -> Iterator[pa.RecordBatch]:
        span = self._plan.span
        for at, header in answer.visible():
            if header.base_offset >= span.end:
                continue
            try:
                if self._plan.settings.check_crcs:
                    check_batch(answer.data, at, header)
                self._rows.add(
                    answer.data[at : at + header.size_bytes], header, start_offset=answer.start, end_offset=span.end
                )
            except CorruptMessage as error:
                raise damaged(span, header.base_offset, error) from error
            if self._rows.body_bytes >= BATCH_BYTES or self._rows.count >= BATCH_ROWS:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was gathered so far, if anything."""
        rows, self._rows = self._rows, ArrowRows()
        if rows.count:
            arrays = [self._column(rows, name) for name in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, rows: ArrowRows, name: str) -> pa.Array:
        match name:
            case "topic":
                return pa.repeat(self._plan.span.name.topic, rows.count)
            case "partition":
                return pa.repeat(pa.scalar(self._plan.span.name.partition, pa.int32()), rows.count)
            case "timestamp":
                return _microseconds(rows.column("timestamp"))
            case "timestampType":
                return rows.column("timestamp_type")
            case "headers":
                return _null_where_empty(rows.column("headers"))
        return rows.column(name)


def _microseconds(milliseconds: pa.Array) -> pa.Array:
    """As Spark has times; one that Spark cannot say is null."""
    try:
        return pc.multiply_checked(milliseconds, 1000).cast(TYPES["timestamp"])
    except pa.ArrowInvalid:
        far = 2**63 // 1000
        can_say = pc.and_(pc.greater(milliseconds, -far), pc.less(milliseconds, far))
        near = pc.if_else(can_say, milliseconds, pa.scalar(None, pa.int64()))
        return pc.multiply_checked(near, 1000).cast(TYPES["timestamp"])


def _null_where_empty(headers: pa.ListArray) -> pa.ListArray:
    """Spark's Kafka source has no empty lists of headers."""
    empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=_HEADERS, mask=empty)


def check_columns(columns: tuple[str, ...], types: tuple[pa.DataType, ...], *, include_headers: bool) -> None:
    """Refuse a schema of the person's own that has other columns than ours, or others' types."""
    for name, kind in zip(columns, types, strict=True):
        if name not in TYPES or TYPES[name] != kind:
            raise BadSchema(
                f"the source has no column {name} of type {kind}; leave the schema out, or name some of its columns: "
                f"{SCHEMA}, {HEADERS_SCHEMA}"
            )
        if name == "headers" and not include_headers:
            raise BadSchema("the schema has the column headers; set the option includeHeaders to true to have it")

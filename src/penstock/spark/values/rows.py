"""Reads rows with typed keys and values: decodes Arrow batches of raw records, and handles bad records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.spark.pyspark_versions import arrow_type_of
from penstock.spark.range_fetch import FetchPlan
from penstock.spark.read_options import ReadOptions
from penstock.spark.read_schema import BAD_RECORD, ReadColumns
from penstock.spark.rows import TYPES, read_rows
from penstock.spark.values.bad_records import DeadLetterWriter, Reasons, bad_record_column, fail
from penstock.spark.values.decoding import (
    BareDecoder,
    ColumnDecoder,
    FramedDecoder,
    FramedReader,
    TextDecoder,
)
from penstock.spark.values.options import PARTS, OnBadRecord, ValueFormat
from penstock.spark.values.reading import PartReader
from penstock.spark.values.registry import Registry

_OFFSET = "offset"
_HEADERS = "headers"


def read_typed_rows(plan: FetchPlan, columns: ReadColumns, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yields the rows of an offset range as Arrow batches, with decoded keys and values."""
    tp = plan.offset_range.tp
    policy = options.bad_records.policy
    letters = DeadLetterWriter(options, tp) if policy is OnBadRecord.DEAD_LETTER else None
    decoders = {each.part.part: _decoder(each, tp.topic, options) for each in columns.readers}
    try:
        for rows in read_rows(plan, _raw_schema(columns, policy)):
            decoded, reasons = decode_parts(rows, decoders)
            if reasons and policy is OnBadRecord.FAIL:
                first = min(reasons)
                raise fail(tp, rows.column(_OFFSET)[first].as_py(), reasons[first])
            typed = _typed_rows(rows, decoded, reasons, columns.schema)
            if reasons and letters is not None:
                bad = sorted(reasons)
                letters.write(rows.take(pa.array(bad)), [reasons[row] for row in bad])
                typed = typed.filter(pa.array([row not in reasons for row in range(rows.num_rows)]))
            if typed.num_rows:
                yield typed
    finally:
        if letters is not None:
            letters.close()


def decode_parts(rows: pa.RecordBatch, decoders: Mapping[str, ColumnDecoder]) -> tuple[dict[str, pa.Array], Reasons]:
    """Decodes the columns `key` and `value` that have a decoder. Returns the columns, and why rows are bad."""
    decoded: dict[str, pa.Array] = {}
    reasons: dict[int, str] = {}
    for part, decoder in decoders.items():
        values, bad = decoder.decode(rows.column(part))
        decoded[part] = values
        for row, reason in bad.items():
            text = f"its {part} is bad: {reason}"
            reasons[row] = f"{reasons[row]}; {text}" if row in reasons else text
    return decoded, reasons


def _typed_rows(
    rows: pa.RecordBatch, decoded: Mapping[str, pa.Array], reasons: Reasons, schema: pa.Schema
) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name == BAD_RECORD:
            column = bad_record_column(rows, reasons)
        else:
            column = decoded[field.name] if field.name in decoded else rows.column(field.name)
        # Only names and nullability of nested fields may differ, so that no data are copied.
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _raw_schema(columns: ReadColumns, policy: OnBadRecord) -> pa.Schema:
    """Returns the columns of raw records from which the typed ones are made."""
    needed = {name: None for name in columns.names if name != BAD_RECORD}
    needed |= dict.fromkeys(each.part.part for each in columns.readers)
    needed[_OFFSET] = None
    if policy is OnBadRecord.NULL and BAD_RECORD in columns.names:
        needed |= dict.fromkeys(PARTS)
    if policy is OnBadRecord.DEAD_LETTER:
        needed |= dict.fromkeys((*PARTS, _HEADERS))
    return pa.schema([pa.field(name, TYPES[name]) for name in needed])


def _decoder(reader: PartReader, topic: str, options: ReadOptions) -> ColumnDecoder:
    part, access = reader.part, options.typed.registry
    if part.format is ValueFormat.TEXT:
        return TextDecoder()
    if part.format is ValueFormat.JSON:
        from penstock.schemas.columns.json.decoder import JsonDecoder

        return BareDecoder(JsonDecoder(arrow_type_of(reader.type)))
    found = reader.schema(topic)
    assert found is not None, "planned with a schema"
    if access is None:
        return BareDecoder(found.schema.decoder(found.schema))
    framed = FramedReader(part=part, access=access, schema=found.schema, subject=found.subject)
    registry = Registry(access, retry_for_s=options.fetch.poll_timeout_s)
    return FramedDecoder(framed, registry, found.schema.column_type())

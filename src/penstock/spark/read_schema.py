"""The columns of the data source: their Spark schema, and the check of a user's schema."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import BadSchema
from penstock.spark.pyspark_versions import arrow_schema_of
from penstock.spark.values.options import PARTS, OnBadRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.read_options import ReadOptions
    from penstock.spark.values.reading import PartReader

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_COLUMNS: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestampType"})
"""Columns that a schema of the user's own may have as NOT NULL. By default all may be null, as in Spark's source."""
_HEADERS: Final = StructField("headers", ArrayType(_HEADER))
BAD_RECORD: Final = "badRecord"
"""Name of the column that says why a record is bad. Only with `onBadRecord=null`."""
_BAD_RECORD: Final = StructType(
    [StructField("reason", StringType()), StructField("key", BinaryType()), StructField("value", BinaryType())]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadColumns:
    """The columns that a query reads."""

    schema: pa.Schema
    """Names and types, as Spark expects them."""
    readers: tuple[PartReader, ...] = ()
    """How keys and values are decoded that are not binary, as far as they are read."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.schema.names)


def plan_readers(options: ReadOptions, parts: Collection[str]) -> tuple[PartReader, ...]:
    """Returns how keys and values are decoded. Asks the schema registry if they have schemas."""
    if not options.typed.parts:
        return ()
    from penstock.spark.values import reading  # late: most queries do not need it

    return reading.plan_readers(options, parts)


def source_schema(options: ReadOptions, readers: Sequence[PartReader]) -> StructType:
    """Returns the schema of Spark's Kafka source, with typed keys and values; with the columns `headers` and
    `badRecord` if the options ask for them."""
    typed = {reader.part.part: reader.type for reader in readers}
    fields = [StructField(each.name, typed.get(each.name, each.dataType)) for each in _COLUMNS]
    if options.include_headers:
        fields.append(_HEADERS)
    if options.bad_records.policy is OnBadRecord.NULL:
        fields.append(StructField(BAD_RECORD, _BAD_RECORD))
    return StructType(fields)


def parts_read(names: Sequence[str], options: ReadOptions) -> tuple[str, ...]:
    """Returns which of keys and values must be decoded to read these columns."""
    return PARTS if BAD_RECORD in names else tuple(part for part in PARTS if part in names)


def read_columns(schema: StructType, options: ReadOptions, readers: Sequence[PartReader]) -> ReadColumns:
    """Returns the columns of a schema that Spark wants to read. Raises BadSchema if a user's schema has a column or a
    type that the source does not have."""
    from penstock.spark.values.column_types import can_hold

    known = arrow_schema_of(source_schema(options, readers))
    wanted = arrow_schema_of(schema)
    for field in wanted:
        if field.name == _HEADERS.name and not options.include_headers:
            raise BadSchema("the schema has the column headers; set the option includeHeaders to true to read it")
        if field.name not in known.names or not can_hold(field.type, known.field(field.name).type):
            kind = schema[field.name].dataType.simpleString()
            raise BadSchema(
                f"the source has no column {field.name} of type {kind}; omit the schema, or use some of these "
                f"columns: {_show(source_schema(options, readers))}"
            )
        if not field.nullable and field.name not in _NEVER_NULL:
            raise BadSchema(
                f"the schema has the column {field.name} as NOT NULL, but messages may have none; omit that"
            )
    parts = parts_read(wanted.names, options)
    return ReadColumns(schema=wanted, readers=tuple(each for each in readers if each.part.part in parts))


def _show(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)

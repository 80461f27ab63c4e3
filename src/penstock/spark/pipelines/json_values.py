"""Parses JSON values into columns like Spark's from_json, and corrects timestamps given in milliseconds."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

SECONDS_MAX: Final = 100_000_000_000
"""The largest number that is read as seconds since 1970 (the year 5138). Larger numbers are read as milliseconds."""


def from_json(value: "Column", fields: "StructType", options: "Mapping[str, str]") -> "Column":
    """Parses JSON as Spark's from_json does, but accepts seconds and milliseconds since 1970 for a TIMESTAMP.
    Spark reads both as seconds, which would put current times in milliseconds into the year 55000."""
    from pyspark.sql import functions as fn

    return _fix_timestamps(fn.from_json(value, fields, dict(options)), fields)


def _fix_timestamps(column: "Column", kind: "DataType") -> "Column":
    from pyspark.sql import functions as fn
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if not _has_times(kind):
        return column
    if isinstance(kind, TimestampType):
        seconds = fn.unix_seconds(column)
        return fn.when(seconds > SECONDS_MAX, fn.timestamp_millis(seconds)).otherwise(column)
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return fn.transform(column, lambda item: _fix_timestamps(item, element))
    if isinstance(kind, MapType):
        entry = kind.valueType
        return fn.transform_values(column, lambda _, item: _fix_timestamps(item, entry))
    assert isinstance(kind, StructType)
    parts = [_fix_timestamps(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
    return fn.when(column.isNotNull(), fn.struct(*parts))


def _has_times(kind: "DataType") -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if isinstance(kind, StructType):
        return any(_has_times(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_times(kind.elementType)
    if isinstance(kind, MapType):
        return _has_times(kind.valueType)
    return isinstance(kind, TimestampType)

"""JSON values as columns: what Spark makes of them, but for times in milliseconds."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

SECONDS_MAX: Final = 100_000_000_000
"""Of a number in the place of a time: the year 5138. What is larger are milliseconds, of 1973 and later."""


def from_json(value: "Column", fields: "StructType", options: "Mapping[str, str]") -> "Column":
    """As Spark's from_json. A number for a TIMESTAMP is in seconds since 1970, or in milliseconds, which is what most
    programs write: Spark takes both for seconds, and would put today into the year 55000."""
    from pyspark.sql import functions as fn

    return _corrected(fn.from_json(value, fields, dict(options)), fields)


def _corrected(column: "Column", kind: "DataType") -> "Column":
    from pyspark.sql import functions as fn
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if not _has_times(kind):
        return column
    if isinstance(kind, TimestampType):
        seconds = fn.unix_seconds(column)
        return fn.when(seconds > SECONDS_MAX, fn.timestamp_millis(seconds)).otherwise(column)
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return fn.transform(column, lambda item: _corrected(item, element))
    if isinstance(kind, MapType):
        entry = kind.valueType
        return fn.transform_values(column, lambda _, item: _corrected(item, entry))
    assert isinstance(kind, StructType)
    parts = [_corrected(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
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

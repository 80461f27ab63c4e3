"""Checks the columns of a DataFrame to be written, by the rules of Spark's Kafka sink."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.spark.errors import BadSchema
from penstock.spark.values.options import KEY, VALUE

_TYPES: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": ((StringType,), "a string"),
    "key": ((StringType, BinaryType), "a string or binary"),
    "value": ((StringType, BinaryType), "a string or binary"),
    "partition": ((IntegerType,), "an int"),
    "timestamp": ((TimestampType, DoubleType), "a timestamp, or a double of seconds since 1970"),
}


_RESERVED: Final = (*_TYPES, "headers")
"""Names of the columns that are never fields of a value."""
_READ_ONLY: Final = ("offset", "timestampType", "badRecord")
"""Names of columns of the source that are ignored, so that what was read can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteColumns:
    """Which columns are read from the DataFrame."""

    topic: bool
    """Whether each row names its topic in the column `topic`."""
    key: bool
    partition: bool
    timestamp: bool
    headers: bool
    fields: tuple[str, ...] | None = None
    """The columns that are the fields of a typed value; None: the value is the column `value`."""

    @classmethod
    def of(cls, schema: StructType, topic: str | None, typed: Collection[str] = ()) -> "WriteColumns":
        """Checks a schema and returns which columns are read. The column `topic` is required if the option `topic` is
        None, and ignored otherwise. `typed`: which of `key` and `value` may have any type, as they are encoded.
        Raises BadSchema if a column is missing or has a wrong type."""
        found = {field.name: field.dataType for field in schema.fields}
        fields = _value_fields(tuple(found)) if VALUE in typed else None
        if VALUE not in found and fields is None:
            there = ", ".join(found) or "none"
            raise BadSchema(f"the required column 'value' is missing; the columns are {there}")
        if KEY in typed and KEY not in found:
            raise BadSchema("the option 'keyFormat' is set, but there is no column 'key'; add one, or leave it out")
        if topic is None and "topic" not in found:
            raise BadSchema("no topic is given: set the option 'topic', or add a string column 'topic'")
        for name, (types, words) in _TYPES.items():
            is_used = name in found and name not in typed and not (name == "topic" and topic is not None)
            if is_used and not isinstance(found[name], types):
                raise BadSchema(f"column {name!r} is {found[name].simpleString()}; it must be {words}")
        if "headers" in found and not _are_headers(found["headers"]):
            raise BadSchema(
                f"column 'headers' is {found['headers'].simpleString()}; it must be "
                "array<struct<key:string,value:binary>>"
            )
        return cls(
            topic=topic is None,
            key="key" in found,
            partition="partition" in found,
            timestamp="timestamp" in found,
            headers="headers" in found,
            fields=fields,
        )


def _value_fields(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Returns the columns that are the fields of a typed value; None if there is a column `value`."""
    others = tuple(name for name in names if name not in _RESERVED)
    if VALUE not in names:
        if not others:
            raise BadSchema(f"there are no columns for the value; the columns are {', '.join(names) or 'none'}")
        return others
    lost = [name for name in others if name not in _READ_ONLY]
    if lost:
        raise BadSchema(
            f"column {lost[0]!r} would not be written, because the column 'value' is the whole value; drop it, or "
            "make it a field: struct(...) AS value"
        )
    return None


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]

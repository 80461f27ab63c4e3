"""The columns of a DataFrame that is written: those of Spark's Kafka sink, with its rules."""

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

_TYPES: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": ((StringType,), "a string"),
    "key": ((StringType, BinaryType), "a string or binary"),
    "value": ((StringType, BinaryType), "a string or binary"),
    "partition": ((IntegerType,), "an int"),
    "timestamp": ((TimestampType, DoubleType), "a timestamp, or a double of seconds since 1970"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteColumns:
    """Which of the columns there are; `value` is always there."""

    topic: bool
    """Whether each row says where it goes."""
    key: bool
    partition: bool
    timestamp: bool
    headers: bool

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> "WriteColumns":
        """Check a schema; `topic` is the option, which counts more than the column. Other columns are left out."""
        found = {field.name: field.dataType for field in schema.fields}
        if "value" not in found:
            there = ", ".join(found) or "none"
            raise BadSchema(f"there is no column 'value', which is what is written; the columns are {there}")
        if topic is None and "topic" not in found:
            raise BadSchema(
                "no topic is named: set the option 'topic', or give each row one in a column 'topic' of strings"
            )
        for name, (types, words) in _TYPES.items():
            is_used = name in found and not (name == "topic" and topic is not None)
            if is_used and not isinstance(found[name], types):
                raise BadSchema(f"column {name!r} is {found[name].simpleString()}, it must be {words}")
        if "headers" in found and not _are_headers(found["headers"]):
            raise BadSchema(
                f"column 'headers' is {found['headers'].simpleString()}, it must be "
                "array<struct<key:string,value:binary>>"
            )
        return cls(
            topic=topic is None,
            key="key" in found,
            partition="partition" in found,
            timestamp="timestamp" in found,
            headers="headers" in found,
        )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]

"""Checks the columns of a DataFrame to be written, by the rules of Spark's Kafka sink."""

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
    """Which optional columns are read from the DataFrame. The column `value` is required."""

    topic: bool
    """Whether each row names its topic in the column `topic`."""
    key: bool
    partition: bool
    timestamp: bool
    headers: bool

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> "WriteColumns":
        """Checks a schema and returns which optional columns are read. The column `topic` is required if the
        option `topic` is None, and ignored otherwise. Raises BadSchema if a column is missing or has a wrong type."""
        found = {field.name: field.dataType for field in schema.fields}
        if "value" not in found:
            there = ", ".join(found) or "none"
            raise BadSchema(f"the required column 'value' is missing; the columns are {there}")
        if topic is None and "topic" not in found:
            raise BadSchema("no topic is given: set the option 'topic', or add a string column 'topic'")
        for name, (types, words) in _TYPES.items():
            is_used = name in found and not (name == "topic" and topic is not None)
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
        )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]

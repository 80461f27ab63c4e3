"""The columns of the data source, as a Spark schema."""

from typing import Final

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


def source_schema(*, include_headers: bool) -> StructType:
    """Returns the schema of Spark's Kafka source; with the column `headers` if they are included."""
    return StructType([*_COLUMNS, *([StructField("headers", ArrayType(_HEADER))] if include_headers else [])])

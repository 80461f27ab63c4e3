"""Differences between versions of PySpark: read limits of streaming sources, and time zones of Arrow schemas."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

SINCE_4_2: Final = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this is PySpark 4.2 or newer. PySpark 4.1 asks a source for its latest offsets without start and limit."""

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

if TYPE_CHECKING or SINCE_4_2:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """Limits a micro-batch."""

    class ReadAllAvailable(ReadLimit):
        """No limit."""

    class ReadMaxRows(ReadLimit):
        """Limits a micro-batch to a number of rows."""

    class SupportsTriggerAvailableNow:
        """Marks sources that can run an availableNow query in several batches."""


def arrow_type_of(kind: "DataType") -> "pa.DataType":
    """Returns the Arrow type of a Spark type; timestamps are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC") if SINCE_4_2 else to_arrow_type(kind)


def arrow_schema_of(schema: "StructType") -> "pa.Schema":
    """Returns the Arrow schema of a Spark schema; timestamps are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC") if SINCE_4_2 else to_arrow_schema(schema)


__all__ = [
    "SINCE_4_2",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema_of",
    "arrow_type_of",
]

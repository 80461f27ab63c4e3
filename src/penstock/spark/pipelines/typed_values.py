"""Typed message values in pipelines: Avro, Protobuf and JSON Schema as columns, with the schemas of a registry."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.client.schema_registry_urls import find_registry
from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.document import Problem
from penstock.spark.pipelines.options import Locations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS: Final = ("avro", "protobuf", "json-schema")
"""The formats of values whose schemas are in a registry."""
_BAD_RECORD: Final = "badRecord"


def check_registry(where: str, value: str, registry: str | None, locations: Locations) -> Iterator[Problem]:
    """Yields a problem if a source or sink names a registry that its values do not need."""
    if registry is not None and value not in FORMATS:
        message = f"{where}: registry requires value: {', '.join(FORMATS)}; it is {value}"
        yield Problem(locations.of("registry"), message)


def registry_options(value: str, registry: str | None, bootstrap: Brokers) -> dict[str, str]:
    """Returns the data source options for a format of values. `registry`: its URLs; None: that of the brokers. Raises
    NoRegistryUrl."""
    if value not in FORMATS:
        return {}
    if registry is None:
        registry = ",".join(map(str, asyncio.run(find_registry(str(bootstrap), bootstrap.client_settings))))
    return {"valueFormat": value, "schemaRegistry": registry}


def bad_record_options(value: str, on_corrupt: str) -> dict[str, str]:
    """Returns the data source options for values that cannot be decoded."""
    return {"onBadRecord": "null"} if value in FORMATS and on_corrupt != "fail" else {}


def flatten_values(typed: "DataFrame", on_corrupt: str, metadata: tuple[str, ...]) -> "DataFrame":
    """Returns the fields of the column `value` as columns, then the columns `metadata`, whose names begin with `_`.

    For on_corrupt `keep`, also `_corrupt` with the reason and the bytes. Values that are no records are the column
    `value`.
    """
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StructType

    found = typed.where(fn.col(_BAD_RECORD).isNull()) if on_corrupt == "drop" else typed
    kind = typed.schema["value"].dataType
    names = kind.fieldNames() if isinstance(kind, StructType) else []
    values = [fn.col(f"value.`{name}`").alias(name) for name in names] or [fn.col("value")]
    corrupt = [fn.col(_BAD_RECORD).alias("_corrupt")] if on_corrupt == "keep" else []
    return found.select(
        *values,
        fn.col("key").cast("string").alias("_key"),
        *(fn.col(name.removeprefix("_")).alias(name) for name in metadata if name != "_key"),
        *corrupt,
    )

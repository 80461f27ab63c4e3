"""Plans how keys and values are read: the driver asks the registry for the reader's schemas, and fixes the types."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, StringType

from penstock.schemas.formats.format import InvalidSchema, NoColumnType
from penstock.spark.driver import DriverClient
from penstock.spark.errors import BadOption
from penstock.spark.values.ddl import parse_json_type
from penstock.spark.values.options import PartOptions, ValueFormat
from penstock.spark.values.registry import Registry
from penstock.spark.values.schemas import SchemaText

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.read_options import ReadOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The schema into whose column type data are read, and its subject, in whose context ids are looked up."""

    schema: SchemaText
    subject: str = ""
    version: int = 0
    """Version of the subject; 0 if the text was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReader:
    """How keys, or values, are read."""

    part: PartOptions
    type: DataType
    schemas: Mapping[str, ReaderSchema]
    """The reader's schema of each topic known when the query was planned. Empty for formats without schemas."""

    def schema(self, topic: str) -> ReaderSchema | None:
        """Returns the reader's schema for records of a topic. Topics found later are read like the first one."""
        return self.schemas.get(topic) or next(iter(self.schemas.values()), None)


def plan_readers(options: ReadOptions, parts: Collection[str]) -> tuple[PartReader, ...]:
    """Returns how those of the given parts of messages are read that are not binary. Asks the registry.

    Raises BadOption, and RegistryUnavailable if the registry does not answer.
    """
    return tuple(_plan(options, part) for part in options.typed.parts if part.part in parts)


def _plan(options: ReadOptions, part: PartOptions) -> PartReader:
    match part.format:
        case ValueFormat.TEXT:
            return PartReader(part=part, type=StringType(), schemas={})
        case ValueFormat.JSON:
            return PartReader(part=part, type=parse_json_type(part), schemas={})
    schemas = _find_schemas(options, part)
    types = {topic: _column_type(part, each) for topic, each in schemas.items()}
    first = next(iter(types))
    for topic, kind in types.items():
        if kind != types[first]:
            raise BadOption(
                f"the {part.part}s of topics {first!r} and {topic!r} have different types in the registry; read one "
                f"topic, or set {part.option('Subject')!r} to the subject whose schema all are read with"
            )
    return PartReader(part=part, type=from_arrow_type(types[first], prefer_timestamp_ntz=True), schemas=schemas)


def _find_schemas(options: ReadOptions, part: PartOptions) -> Mapping[str, ReaderSchema]:
    if part.schema is not None:
        text = SchemaText(format=part.format, text=part.schema, message=part.message)
        return {"": ReaderSchema(schema=text, subject=part.subject or "")}
    access = options.typed.registry
    assert access is not None, "checked with the options"
    registry = Registry(access, retry_for_s=options.connect_tries * options.retry_interval_s)
    if part.subject is not None:
        found = registry.find(part, part.subject)
        return {"": ReaderSchema(schema=found.schema, subject=found.subject, version=found.version)}
    schemas = {}
    for topic in _topics(options, part):
        found = registry.find(part, f"{topic}-{part.part}")
        schemas[topic] = ReaderSchema(schema=found.schema, subject=found.subject, version=found.version)
    return schemas


def _topics(options: ReadOptions, part: PartOptions) -> Sequence[str]:
    selection = options.selection
    if selection.pattern is None:
        return selection.topic_names
    driver = DriverClient(options)
    try:
        found = sorted({tp.topic for tp in driver.partitions()})
    finally:
        driver.close()
    if not found:
        raise BadOption(
            f"there are no {selection}, so no schema can be found for them; create one, or set "
            f"{part.option('Subject')!r}"
        )
    return found


def _column_type(part: PartOptions, found: ReaderSchema) -> pa.DataType:
    where = (
        f"subject {found.subject!r}, version {found.version}"
        if found.version
        else f"option {part.option('Schema')!r}"
    )
    try:
        return found.schema.column_type()
    except (InvalidSchema, NoColumnType) as error:
        raise BadOption(
            f"{where}: {error} Set {part.option('Format')!r} to binary to read the bytes, or choose another schema"
        ) from error

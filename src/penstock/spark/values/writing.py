"""Plans how keys and values are written: the driver derives or finds their schemas, and registers them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from penstock.client.schema_registry_errors import SCHEMA_NOT_FOUND, SUBJECT_NOT_FOUND, RegistryError
from penstock.client.schema_registry_models import LATEST, Schema
from penstock.foundation.errors import PenstockError
from penstock.schemas.formats.format import InvalidSchema, NoColumnType
from penstock.spark.errors import BadOption, BadSchema
from penstock.spark.pyspark_versions import arrow_schema_of, arrow_type_of
from penstock.spark.values.column_types import misfit, nullable
from penstock.spark.values.ddl import parse_json_type
from penstock.spark.values.framing import HEADER
from penstock.spark.values.options import REGISTER, USE_LATEST, VALUE, PartOptions, ValueFormat
from penstock.spark.values.registry import Registry
from penstock.spark.values.schemas import TYPES, SchemaText, derive_schema
from penstock.spark.write_options import WriteOptions
from penstock.spark.write_schema import WriteColumns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_NOT_IN_NAMES: Final = re.compile(r"\W", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWriter:
    """How keys, or values, are written. The driver sends it to the tasks."""

    part: str
    format: ValueFormat
    fields: tuple[str, ...] | None
    """The columns that are the fields of the struct to write; None: the column with the name of the part."""
    type: pa.DataType
    """The column type of the schema, to which the column is converted."""
    schema: SchemaText | None = None
    """None for formats without a schema."""
    header: bytes = b""
    """The magic byte and the schema id, which begin each payload."""


def plan_writers(options: WriteOptions, columns: WriteColumns, schema: StructType) -> tuple[PartWriter, ...]:
    """Returns how keys and values are written that are not binary. Registers their schemas.

    Raises BadOption, BadSchema if the columns do not fit, and RegistryUnavailable.
    """
    return tuple(_plan(options, columns, schema, part) for part in options.typed.parts)


def _plan(options: WriteOptions, columns: WriteColumns, schema: StructType, part: PartOptions) -> PartWriter:
    import pyarrow as pa

    given = arrow_schema_of(schema)
    fields = columns.fields if part.part == VALUE else None
    kind = given.field(part.part).type if fields is None else pa.struct([given.field(name) for name in fields])
    writer = PartWriter(part=part.part, format=part.format, fields=fields, type=kind)
    if part.format is ValueFormat.TEXT:
        _check_fit(part, kind, pa.string(), "their format, which is text")
        return replace(writer, type=pa.string())
    if part.format is ValueFormat.JSON:
        return replace(writer, type=_json_type(part, kind))
    found, schema_id = _choose_schema(options, part, kind)
    wanted = _column_type(part, found)
    _check_fit(part, kind, wanted, "their schema")
    if schema_id is None and options.typed.registry is not None:
        schema_id = _register(options, part, found)
    header = b"" if schema_id is None else HEADER.pack(0, schema_id)
    return replace(writer, type=wanted, schema=found, header=header)


def _check_fit(part: PartOptions, kind: pa.DataType, wanted: pa.DataType, what: str) -> None:
    """Raises BadSchema if a column cannot be converted to the type of its schema."""
    reason = misfit(kind, wanted)
    if reason is not None:
        raise BadSchema(f"the {part.part}s do not fit {what}: {reason}")


def _json_type(part: PartOptions, kind: pa.DataType) -> pa.DataType:
    """Returns the type that is written as JSON: that of the option `valueSchema`, or of the column."""
    if part.schema is None:
        _derive(ValueFormat.JSON_SCHEMA, part, kind, "")  # raises if JSON cannot hold the type
        return kind
    wanted = arrow_type_of(parse_json_type(part))
    _check_fit(part, kind, wanted, f"the option {part.option('Schema')!r}")
    return wanted


def _choose_schema(options: WriteOptions, part: PartOptions, kind: pa.DataType) -> tuple[SchemaText, int | None]:
    """Returns the schema to write with, and its id if the registry has it already."""
    if part.schema is not None:
        return SchemaText(format=part.format, text=part.schema, message=part.message), None
    subject = _subject(options, part)
    registry = _registry(options)
    if options.registration.use_latest or part.version is not None:
        found = registry.find(part, subject)
        return found.schema, found.id
    return _derive(part.format, part, kind, part.message or _record_name(options, part, subject)), None


def _derive(format: ValueFormat, part: PartOptions, kind: pa.DataType, name: str) -> SchemaText:
    try:
        # Whether a DataFrame's column may be null changes easily: one with a constant may not. A new field that may
        # not be null would be an incompatible change.
        return derive_schema(format, nullable(kind), name)
    except PenstockError as error:
        raise BadSchema(f"the {part.part}s cannot be written as {part.format.value}: {error}") from None


def _record_name(options: WriteOptions, part: PartOptions, subject: str) -> str:
    """Returns the name for a derived record: that of the latest schema, as another name would be incompatible."""
    latest = _registry(options).version(subject, LATEST)
    if latest is not None and latest.schema.type == TYPES[part.format]:
        references = _registry(options).references(latest.schema, subject)
        name = SchemaText(format=part.format, text=latest.schema.text, references=references).record_name()
        if name is not None:
            return name
    name = _NOT_IN_NAMES.sub("_", subject.rpartition(":")[2].removesuffix(f"-{VALUE}"))
    return f"_{name}" if name[:1].isdigit() else name


def _subject(options: WriteOptions, part: PartOptions) -> str:
    if part.subject is not None:
        return part.subject
    if options.topic is None:
        raise BadOption(
            f"option {part.option('Subject')!r} is missing: rows name their topics, so the subject of the schema is "
            "not known; set it, or the option 'topic'"
        )
    return f"{options.topic}-{part.part}"


def _registry(options: WriteOptions) -> Registry:
    assert options.typed.registry is not None, "checked with the options"
    return Registry(options.typed.registry, retry_for_s=options.client.retry_for_s)


def _column_type(part: PartOptions, schema: SchemaText) -> pa.DataType:
    try:
        return schema.column_type()
    except (InvalidSchema, NoColumnType) as error:
        raise BadOption(f"the schema for the {part.part}s cannot be used: {error}") from error


def _register(options: WriteOptions, part: PartOptions, found: SchemaText) -> int:
    """Returns the id of a schema, after registering it if the options allow that."""
    subject = _subject(options, part)
    registry = _registry(options)
    schema = Schema(text=found.text, type=TYPES[part.format])
    try:
        if options.registration.register:
            return registry.register(subject, schema).id
        return registry.look_up(subject, schema).id
    except RegistryError as error:
        if not options.registration.register and error.error_code in (SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND):
            raise BadOption(
                f"subject {subject!r} does not have the schema of the {part.part}s, and {REGISTER!r} is false: "
                f"register it, or set {USE_LATEST!r} to true; the schema is {found.text}"
            ) from error
        raise BadSchema(f"the schema of the {part.part}s cannot be registered as {subject!r}: {error}") from error

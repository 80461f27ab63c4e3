"""SQL tables over topics: `CREATE TABLE orders USING penstock OPTIONS (...)`.

Spark 4.3 passes the options of a table to `schema()` only, when the table is created; readers and writers of the
table get none. So the table's schema carries them, as metadata of its first column.

An INSERT without a list of columns passes the metadata of the *source*, which may be another table of this kind: the
rows would go to the wrong topic. So the column `offset`, which other INSERTs leave out, has a default that only this
table has. Rows of another table have other offsets, and are refused.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import LongType, StructField, StructType

from penstock.spark.errors import BadOption, BadSchema
from penstock.spark.options import BOOTSTRAP, OptionTable
from penstock.spark.read_options import READ_OPTIONS, ReadOptions
from penstock.spark.read_schema import plan_readers, source_schema
from penstock.spark.values.options import PARTS, USE_LATEST
from penstock.spark.write_options import WRITE_OPTIONS, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.values.reading import PartReader

METADATA: Final = "penstock.table"
"""Key of the column metadata that hold the options of a table, as a JSON object."""
_PREFIX: Final = "option."
"""Prefix of the options given in OPTIONS (...), among the properties of a new table."""
_OFFSET: Final = "offset"
_TOPIC: Final = "topic"
_SUBSCRIBE: Final = "subscribe"
_BOTH: Final = OptionTable(
    direction="a table",
    known=READ_OPTIONS.known | WRITE_OPTIONS.known,
    ignored=READ_OPTIONS.ignored | WRITE_OPTIONS.ignored,
    refused={**READ_OPTIONS.refused, **WRITE_OPTIONS.refused},
)
_HOW_TO_CREATE: Final = (
    f"CREATE TABLE orders USING penstock OPTIONS (`{BOOTSTRAP}` 'localhost:9092', topic 'orders'), without column "
    "names and without AS SELECT"
)
_HOW_TO_INSERT: Final = "name the columns to write, such as INSERT INTO orders (key, value) SELECT ..."


def is_new_table(options: Mapping[str, str]) -> bool:
    """Returns whether Spark asks for the schema of a new table: it then adds properties of its own to the options."""
    return "provider" in options


def table_schema(properties: Mapping[str, str]) -> StructType:
    """Returns the schema of a new table, with its options. Raises BadOption if an option is wrong."""
    given = {name.removeprefix(_PREFIX): text for name, text in properties.items() if name.startswith(_PREFIX)}
    options = {name.lower(): text for name, text in given.items()}
    _check_names(given)
    reading = ReadOptions.parse(for_reading(options))
    readers = plan_readers(reading, PARTS)
    schema = source_schema(reading, readers)
    if _TOPIC in for_writing(options):
        WriteOptions.parse(for_writing(options))
    pinned = _pinned_versions(readers)
    if pinned:  # rows are written with the latest version of now, too
        options = {name: text for name, text in options.items() if name != USE_LATEST.lower()} | pinned
    default = str(table_mark(options))
    fields = [
        StructField(field.name, field.dataType, True, {"CURRENT_DEFAULT": default, "EXISTS_DEFAULT": default})
        if field.name == _OFFSET
        else field
        for field in schema.fields
    ]
    fields[0] = StructField(fields[0].name, fields[0].dataType, True, {METADATA: json.dumps(options)})
    return StructType(fields)


def _pinned_versions(readers: "Iterable[PartReader]") -> dict[str, str]:
    """Returns the options that name the schemas which the table's columns have: the columns stay as they are when the
    registry gets newer schemas. Raises BadOption if the topics of the table have different versions."""
    found: dict[str, str] = {}
    for reader in readers:
        versions = {each.version for each in reader.schemas.values()} - {0}
        name = reader.part.option("SchemaVersion").lower()
        if len(versions) > 1:
            raise BadOption(
                "the topics of the table have different versions of their schemas; set "
                f"{reader.part.option('Subject')!r} to the subject whose schema all are read with"
            )
        found.update((name, str(version)) for version in versions)
    return found


def _check_names(given: Mapping[str, str]) -> None:
    """Raises BadOption for a name that is an option neither for reading nor for writing."""
    for name in given:
        if name.lower() not in _BOTH.spelled:
            raise _BOTH.refuse(name)


def options_of(schema: StructType) -> dict[str, str] | None:
    """Returns the options of the table that a schema belongs to; None if it belongs to none."""
    for field in schema.fields:
        text = (field.metadata or {}).get(METADATA)
        if text is not None:
            return dict(json.loads(text))
    return None


def table_mark(options: Mapping[str, str]) -> int:
    """Returns the default of the table's column `offset`: negative, and different for each set of options."""
    digest = hashlib.blake2b(json.dumps(sorted(options.items())).encode(), digest_size=7).digest()
    return -1 - int.from_bytes(digest, "big")


def for_reading(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that matter for reading. The option `topic` names the topic to read, too."""
    found = {name: text for name, text in options.items() if name in READ_OPTIONS.spelled}
    if _TOPIC in options and not found.keys() & {_SUBSCRIBE, "subscribepattern", "assign"}:
        found[_SUBSCRIBE] = options[_TOPIC]
    return found


def for_writing(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that matter for writing. A table of a single topic writes to it."""
    found = {name: text for name, text in options.items() if name in WRITE_OPTIONS.spelled}
    subscribed = options.get(_SUBSCRIBE, "")
    if _TOPIC not in found and subscribed and "," not in subscribed:
        found[_TOPIC] = subscribed.strip()
    return found


def read_options(given: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """Returns the options for a read: those given, on top of those of the table that is read."""
    return _merge(given, schema, for_reading)


def write_options(given: Mapping[str, str], schema: StructType) -> "tuple[Mapping[str, str], int | None]":
    """Returns the options for a write, and the mark that each row must have; None if no table is written.

    Raises BadSchema if rows for a table have no column `offset`, so that they cannot be checked.
    """
    table = options_of(schema)
    if table is None or _has_bootstrap(given):
        return _merge(given, schema, for_writing), None
    kinds = {field.name: field.dataType for field in schema.fields}
    if not isinstance(kinds.get(_OFFSET), LongType):
        raise BadSchema(
            f"option {BOOTSTRAP!r} is missing: Spark passes none for CREATE TABLE AS SELECT, nor for toTable() of "
            f"streams. Create the table with {_HOW_TO_CREATE}, and {_HOW_TO_INSERT}; or use format('penstock') with "
            "options"
        )
    return _merge(given, schema, for_writing), table_mark(table)


def _merge(
    given: Mapping[str, str], schema: StructType, choose: Callable[[Mapping[str, str]], dict[str, str]]
) -> Mapping[str, str]:
    table = options_of(schema)
    if _has_bootstrap(given):
        return given
    if table is not None:
        explicit = {name.lower(): text for name, text in given.items()}
        return {**choose(table), **explicit}
    if not given:
        raise BadOption(
            f"Spark passed no options. Create the table with {_HOW_TO_CREATE}; then INSERT INTO it. To write a "
            "stream, use writeStream.format('penstock') with options instead of toTable()"
        )
    return given


def _has_bootstrap(given: Mapping[str, str]) -> bool:
    return any(name.lower() == BOOTSTRAP for name in given)


def checked(rows: "Iterator[pa.RecordBatch]", mark: int | None) -> "Iterator[pa.RecordBatch]":
    """Yields the rows, without the column `offset`. Raises BadSchema if a row was meant for another table."""
    if mark is None:
        yield from rows
        return
    import pyarrow.compute as pc

    for batch in rows:
        column = batch.column(_OFFSET)
        if batch.num_rows and (column.null_count or not pc.all(pc.equal(column, mark)).as_py()):
            raise BadSchema(f"offsets cannot be written, brokers assign them; {_HOW_TO_INSERT}")
        yield batch

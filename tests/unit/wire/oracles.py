"""Two codecs of other projects under one interface: they read what we write, and the other way round.

Both are driven by our schema, by position: their fields of a version stand in the order of ours, and their
names differ here and there (kio drops units, so that `max_wait_ms` is `max_wait`).
"""

import dataclasses
import io
import warnings
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, Protocol, get_args
from uuid import UUID

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.wire.schema import NIL_UUID, Field, message_of

from .catalogue import is_flexible
from .values import build, is_tagged_struct, present, without_default_struct

with warnings.catch_warnings():
    # Warnings are errors in tests, and kafka-python reads its definitions in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.schemas import StructField, load_json

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Oracle(Protocol):
    name: str

    def has(self, cls: type, version: int) -> bool: ...

    def encode(self, message: Any, version: int) -> bytes: ...

    def decode(self, cls: type, version: int, data: bytes) -> Any: ...


class Kio:
    """A dataclass a version, with timedelta, datetime, UUID and an enum of error codes for values."""

    name = "kio"

    def has(self, cls: type, version: int) -> bool:
        try:
            _kio_entity(cls, version)
        except KioIndexError:
            return False
        return True

    def encode(self, message: Any, version: int) -> bytes:
        entity = _kio_entity(type(message), version)
        out = io.BytesIO()
        entity_writer(entity)(out, _to_kio(message, version, entity))
        return out.getvalue()

    def decode(self, cls: type, version: int, data: bytes) -> Any:
        value, size = entity_reader(_kio_entity(cls, version))(data, 0)
        assert size == len(data), f"kio read {size} of {len(data)} bytes"
        return _from_kio(cls, version, value)


@cache
def _kio_entity(cls: type, version: int) -> Any:
    message = message_of(cls)
    load = load_request_schema if message.is_request else load_response_schema
    return load(message.key, version)


@cache
def _kio_fields(entity: Any) -> list[tuple[str, str | None, Any]]:
    """Name, Kafka type and nested class of every field, in order."""
    return [
        (field.name, field.metadata.get("kafka_type"), _dataclass_in(field.type))
        for field in dataclasses.fields(entity)
    ]


def _dataclass_in(annotation: Any) -> Any:
    """The nested entity in `Entity`, `Entity | None`, `tuple[Entity, ...]` or `tuple[Entity, ...] | None`."""
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next(filter(None, map(_dataclass_in, get_args(annotation))), None)


def _to_kio(message: Any, version: int, entity: Any) -> Any:
    def one(value: Any, kafka_type: str | None, nested: Any) -> Any:
        if nested is not None:
            return _to_kio(value, version, nested)
        if kafka_type == "error_code":
            return ErrorCode(value)
        if kafka_type in ("timedelta_i32", "timedelta_i64"):
            return value * _MILLISECOND
        if kafka_type == "datetime_i64":
            return None if value == -1 else _EPOCH + value * _MILLISECOND
        if kafka_type == "uuid":
            return None if value == NIL_UUID else UUID(bytes=value)
        return value

    found = {}
    ours = present(type(message), version)
    for field, (name, kafka_type, nested) in zip(ours, _kio_fields(entity), strict=True):
        value = getattr(message, field.name)
        if field.is_array and value is not None:
            found[name] = tuple(one(item, kafka_type, nested) for item in value)
        elif value is not None:
            found[name] = one(value, kafka_type, nested)
        elif not is_tagged_struct(field):
            found[name] = None
        # A tagged struct that is None is left to kio's default.
    return entity(**found)


def _from_kio(cls: type, version: int, value: Any) -> Any:
    def one(field: Field, item: Any, kafka_type: str | None) -> Any:
        if field.struct is not None:
            return _from_kio(field.struct, version, item)
        if kafka_type in ("timedelta_i32", "timedelta_i64"):
            return item // _MILLISECOND
        if kafka_type == "datetime_i64":
            return -1 if item is None else (item - _EPOCH) // _MILLISECOND
        if kafka_type == "uuid":
            return NIL_UUID if item is None else item.bytes
        return int(item.value) if kafka_type == "error_code" else item

    theirs = dict(zip((field.name for field in present(cls, version)), _kio_fields(type(value)), strict=True))

    def make(field: Field) -> Any:
        name, kafka_type, _ = theirs[field.name]
        item = getattr(value, name)
        if item is None and kafka_type not in ("datetime_i64", "uuid"):
            return None
        if field.is_array:
            return [one(field, part, kafka_type) for part in item]
        return without_default_struct(field, version, one(field, item, kafka_type))

    return build(cls, version, make)


class KafkaPython:
    """Interprets the message definitions, and takes and gives dictionaries."""

    name = "kafka-python"

    def has(self, cls: type, version: int) -> bool:
        try:
            definition = _definition(cls.__name__)
        except FileNotFoundError:
            return False
        return definition.min_version <= version <= definition.max_version

    def encode(self, message: Any, version: int) -> bytes:
        flexible = is_flexible(type(message), version)
        plain = _to_dict(message, version, _definition(type(message).__name__))
        encoded: bytes = _definition(type(message).__name__).encode(
            plain, version=version, compact=flexible, tagged=flexible
        )
        return encoded

    def decode(self, cls: type, version: int, data: bytes) -> Any:
        flexible = is_flexible(cls, version)
        stream = io.BytesIO(data)
        plain = _definition(cls.__name__).decode(stream, version=version, compact=flexible, tagged=flexible)
        assert stream.tell() == len(data), f"kafka-python read {stream.tell()} of {len(data)} bytes"
        return _from_dict(cls, version, plain, _definition(cls.__name__))


@cache
def _definition(name: str) -> Any:
    # Not the ready-made message classes: some are patched to show bit fields as sets.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return StructField(load_json(name))


def _pairs(cls: type, version: int, definition: Any) -> list[tuple[Field, Any]]:
    theirs = [field for field in definition.fields.values() if field.for_version_q(version)]
    return list(zip(present(cls, version), theirs, strict=True))


def _to_dict(message: Any, version: int, definition: Any) -> dict[str, Any]:
    def one(field: Field, item: Any, theirs: Any) -> Any:
        if field.struct is not None:
            return _to_dict(item, version, theirs)
        if field.kind == "uuid":
            return None if item == NIL_UUID else UUID(bytes=item)
        return item

    found = {}
    for field, theirs in _pairs(type(message), version, definition):
        value = getattr(message, field.name)
        if field.is_array and value is not None:
            found[theirs.name] = [one(field, item, theirs) for item in value]
        else:
            found[theirs.name] = None if value is None else one(field, value, theirs)
    return found


def _from_dict(cls: type, version: int, plain: dict[str, Any], definition: Any) -> Any:
    pairs = {field.name: theirs for field, theirs in _pairs(cls, version, definition)}

    def one(field: Field, item: Any) -> Any:
        if field.struct is not None:
            return _from_dict(field.struct, version, item, pairs[field.name])
        if field.kind == "uuid":
            return NIL_UUID if item is None else item.bytes
        return item

    def make(field: Field) -> Any:
        theirs = pairs[field.name]
        if theirs.name not in plain:
            return field.initial  # a tagged field that was left out
        item = plain[theirs.name]
        if item is None and field.kind != "uuid":
            return None
        return [one(field, part) for part in item] if field.is_array else one(field, item)

    return build(cls, version, make)


ORACLES: Final[tuple[Oracle, ...]] = (Kio(), KafkaPython())

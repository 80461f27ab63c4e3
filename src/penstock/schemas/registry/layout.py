"""Encodes and decodes the records of the topic `_schemas`, byte for byte as Confluent's registry writes them."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.foundation.decision import StateRecord
from penstock.foundation.errors import PenstockError
from penstock.schemas.registry.data_contract import Json, Metadata, RuleSet
from penstock.schemas.registry.errors import RegistryError
from penstock.schemas.registry.model import AVRO, Config, Mode, Reference, SchemaText, SchemaVersion, is_version

TENANT: Final = "default"
_MAGIC_SCHEMA: Final = 1
_MAGIC_OTHER: Final = 0
_IDS_USED: Final = "penstockIdsUsed"
IDS_SUBJECT: Final = ":.__penstock:ids"
"""A subject without schemas. Its config record remembers the largest id of each context whose schema was deleted for
good, so that ids are not used again once compaction has removed its records. Other registries see a config."""


class UnreadableRecord(PenstockError):
    """A record that this layout does not have, or that is malformed. It is skipped and counted."""


@dataclass(frozen=True, slots=True)
class SchemaKey:
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigKey:
    subject: str | None
    """None: the config of the whole registry."""


@dataclass(frozen=True, slots=True)
class ModeKey:
    subject: str | None


@dataclass(frozen=True, slots=True)
class ContextKey:
    context: str


@dataclass(frozen=True, slots=True)
class DeleteSubjectKey:
    """Soft-deletes all versions of a subject up to the version in the value."""

    subject: str


@dataclass(frozen=True, slots=True)
class ClearSubjectKey:
    """Removes all soft-deleted versions of a subject, or of a context, for good."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class NoopKey:
    """Changes nothing. Confluent's registry writes it to learn the end offset of the topic."""


@dataclass(frozen=True, slots=True)
class IdsUsed:
    """The largest id that was given in each context, among schemas deleted for good."""

    by_context: tuple[tuple[str, int], ...]


Key = SchemaKey | ConfigKey | ModeKey | ContextKey | DeleteSubjectKey | ClearSubjectKey | NoopKey
Value = SchemaVersion | Config | Mode | IdsUsed | int | None
"""The value of a record; an int is the version up to which a subject is deleted, None is a tombstone."""

_SUBJECT_KEYS: Final[dict[type[Any], str]] = {
    ConfigKey: "CONFIG",
    ModeKey: "MODE",
    DeleteSubjectKey: "DELETE_SUBJECT",
    ClearSubjectKey: "CLEAR_SUBJECT",
}
_KEYS_OF_SUBJECTS: Final = {name: kind for kind, name in _SUBJECT_KEYS.items()}


def record(key: Key, value: Value) -> StateRecord:
    """Returns the record of a change. For a ContextKey or ClearSubjectKey, `value` only tells whether it is set."""
    encoded = _encode_value(key, value)
    return StateRecord(key=orjson.dumps(_key_json(key)), value=encoded, parsed=(key, value))


def _key_json(key: Key) -> Json:
    if isinstance(key, SchemaKey):
        return {"keytype": "SCHEMA", "subject": key.subject, "version": key.version, "magic": _MAGIC_SCHEMA}
    if isinstance(key, ContextKey):
        return {"keytype": "CONTEXT", "tenant": TENANT, "context": key.context, "magic": _MAGIC_OTHER}
    if isinstance(key, NoopKey):
        return {"keytype": "NOOP", "magic": _MAGIC_OTHER}
    found: Json = {"keytype": _SUBJECT_KEYS[type(key)]}
    if key.subject:
        found["subject"] = key.subject
    return found | {"magic": _MAGIC_OTHER}


def _encode_value(key: Key, value: Value) -> bytes | None:
    if value is None:
        return None
    found: Json
    if isinstance(value, SchemaVersion):
        found = version_json(value)
    elif isinstance(key, ContextKey):
        found = {"tenant": TENANT, "context": key.context}
    else:
        found = {} if isinstance(key, NoopKey) or not key.subject else {"subject": key.subject}
        if isinstance(value, Config):
            found |= value.json()
        elif isinstance(value, IdsUsed):
            found |= {"compatibilityLevel": "NONE", _IDS_USED: dict(value.by_context)}
        elif isinstance(value, Mode):
            found["mode"] = value.value
        elif isinstance(key, DeleteSubjectKey):
            found["version"] = value
    return orjson.dumps(found)


def version_json(value: SchemaVersion) -> Json:
    """Returns the value of a schema's record."""
    schema = value.schema
    found: Json = {"subject": value.subject, "version": value.version, "id": value.id, "schemaType": schema.type}
    if schema.references:
        found["references"] = [each.json() for each in schema.references]
    if schema.metadata is not None:
        found["metadata"] = schema.metadata.json()
    if schema.rule_set is not None:
        found["ruleSet"] = schema.rule_set.json()
    return found | {"schema": schema.text, "deleted": value.deleted}


def decode(found: StateRecord) -> tuple[Key, Value]:
    """Returns key and value of a record. Raises UnreadableRecord."""
    if found.parsed is not None:
        return found.parsed
    try:
        fields = orjson.loads(found.key)
        key = _decode_key(fields)
        value = None if found.value is None else _decode_value(key, orjson.loads(found.value))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError, RegistryError) as error:
        raise UnreadableRecord(f"record with key {found.key[:200]!r}: {error}") from error
    return key, value


def _decode_key(fields: Any) -> Key:
    kind = fields["keytype"]
    if kind == "SCHEMA":
        if fields.get("magic", _MAGIC_SCHEMA) not in (0, _MAGIC_SCHEMA):
            raise UnreadableRecord(f"a schema's key with magic byte {fields['magic']}; 0 and 1 are known")
        return SchemaKey(_text(fields, "subject"), _version(fields, "version"))
    if kind == "CONTEXT":
        return ContextKey(_text(fields, "context"))
    if kind == "NOOP":
        return NoopKey()
    if kind not in _KEYS_OF_SUBJECTS:
        raise UnreadableRecord(f"unknown keytype {str(kind)[:100]!r}")
    subject = fields.get("subject")
    if kind == "DELETE_SUBJECT":
        return DeleteSubjectKey(_text(fields, "subject"))
    if subject is not None:
        subject = _text(fields, "subject")
    return _KEYS_OF_SUBJECTS[kind](subject)  # type: ignore[no-any-return]


def _decode_value(key: Key, fields: Any) -> Value:
    if not isinstance(fields, dict):
        raise UnreadableRecord("the value is not a JSON object")
    match key:
        case SchemaKey(subject, version):
            text = SchemaText(
                type=fields.get("schemaType") or AVRO,
                text=_text(fields, "schema"),
                references=tuple(Reference.parse(each) for each in fields.get("references") or ()),
                metadata=Metadata.parse(fields.get("metadata")),
                rule_set=RuleSet.parse(fields.get("ruleSet")),
            )
            is_deleted = fields.get("deleted") is True
            return SchemaVersion(
                subject=subject, version=version, id=_integer(fields, "id"), schema=text, deleted=is_deleted
            )
        case ConfigKey(subject) if subject == IDS_SUBJECT and _IDS_USED in fields:
            return IdsUsed(tuple(sorted((name, _integer(fields[_IDS_USED], name)) for name in fields[_IDS_USED])))
        case ConfigKey():
            return Config.parse(fields)
        case ModeKey():
            return Mode.parse(fields["mode"])
        case DeleteSubjectKey():
            return _integer(fields, "version")
    return 1


def _text(fields: Any, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise UnreadableRecord(f"{name} is not a string")
    return value


def _integer(fields: Any, name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise UnreadableRecord(f"{name} is not a number from 0 to 2^31-1")
    return value


def _version(fields: Any, name: str) -> int:
    if not is_version(fields[name]):
        raise UnreadableRecord(f"{name} is not a version")
    return _integer(fields, name)

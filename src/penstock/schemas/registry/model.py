"""What the registry stores: versions of schemas, and the config and mode of a subject, a context or all subjects."""

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Final, TypeGuard

from penstock.schemas.registry.data_contract import Json, Metadata, RuleSet
from penstock.schemas.registry.errors import InvalidCompatibilityLevel, InvalidMode, SchemaRejected

AVRO: Final = "AVRO"
JSON_SCHEMA: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
SCHEMA_TYPES: Final = (JSON_SCHEMA, PROTOBUF, AVRO)
"""The schema types, in the order in which Confluent's registry lists them."""
LATEST: Final = -1
"""Version that means the latest one which is not deleted."""
VERSION_MAX: Final = 2**31 - 1


class Level(Enum):
    """Compatibility level: whose data must be readable by whom before a version is accepted."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @classmethod
    def parse(cls, text: object) -> "Level":
        try:
            return cls(text.upper() if isinstance(text, str) else text)
        except ValueError:
            raise InvalidCompatibilityLevel from None

    @property
    def reads_old(self) -> bool:
        """Whether the new schema must be able to read data of earlier versions."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_old(self) -> bool:
        """Whether earlier versions must be able to read data of the new schema."""
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier versions count, not only the latest."""
        return self.value.endswith("_TRANSITIVE")


class Mode(Enum):
    """Which changes a subject, a context or the whole registry accepts."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    """Clients choose ids and versions; schemas are not compared with earlier ones."""
    FORWARD = "FORWARD"

    @classmethod
    def parse(cls, text: object) -> "Mode":
        try:
            return cls(text.upper() if isinstance(text, str) else text)
        except ValueError:
            raise InvalidMode from None

    @property
    def is_read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)

    @property
    def is_import(self) -> bool:
        return self in (Mode.IMPORT, Mode.FORWARD)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from a schema to a version of another subject's schema."""

    name: str
    """How the schema names it: a full name in Avro, the value of `$ref` in JSON Schema, a file in Protobuf."""
    subject: str
    version: int

    @classmethod
    def parse(cls, found: Any) -> "Reference":
        if not isinstance(found, dict):
            raise SchemaRejected("a reference must be a JSON object with name, subject and version")
        name, subject, version = found.get("name"), found.get("subject"), found.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not is_version(version):
            raise SchemaRejected(f"Invalid reference: {str(found)[:200]}; name, subject and version are required")
        return cls(name, subject, version)

    def json(self) -> Json:
        return {"name": self.name, "subject": self.subject, "version": self.version}


def is_version(found: object) -> TypeGuard[int]:
    """Whether a JSON value is a version, or -1 for the latest one."""
    if not isinstance(found, int) or isinstance(found, bool):
        return False
    return found == LATEST or 1 <= found <= VERSION_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaText:
    """A schema with everything that makes it the same as another: its GUID is the hash of all this."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    _guid: str = field(default="", init=False, compare=False, repr=False)

    @property
    def guid(self) -> str:
        """The id of the schema in any registry: an MD5 hash, as Confluent's registry computes it."""
        if not self._guid:  # computed once: the text may have a megabyte
            object.__setattr__(self, "_guid", self._compute_guid())
        return self._guid

    def _compute_guid(self) -> str:
        found = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for reference in self.references:
            found.update(reference.name.encode())
            found.update(reference.subject.encode())
            found.update(reference.version.to_bytes(4, "big", signed=True))
        for part in (self.metadata, self.rule_set):
            if part is not None:
                found.update(b"\x01")
                for text in part.hashed():
                    found.update(text.encode())
        return str(uuid.UUID(bytes=found.digest()))

    @property
    def size_bytes(self) -> int:
        """About the memory that the texts take."""
        return len(self.text) + 100 * len(self.references)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: SchemaText
    deleted: bool = False
    """Whether it is soft-deleted: hidden from lists, but readers of old data still find it by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of a subject, a context or the whole registry. None: not set at this level."""

    alias: str | None = None
    normalize: bool | None = None
    validate_fields: bool | None = None
    validate_new_schemas: bool | None = None
    validate_rules: bool | None = None
    level: Level | None = None
    group: str | None = None
    """Name of a metadata property: only versions with the same value of it are compared."""
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> "Config":
        """Reads the settings that a request or a record has. Raises RegistryError if one is malformed."""
        return cls(**{attribute: read(found[name]) for name, (attribute, read) in _CONFIG.items() if name in found})

    def json(self) -> Json:
        found: Json = {}
        for name, (attribute, _) in _CONFIG.items():
            value = getattr(self, attribute)
            if value is not None:
                found[name] = value.value if isinstance(value, Level) else value
                if isinstance(value, Metadata | RuleSet):
                    found[name] = value.json()
        return {name: value for name, value in found.items() if value not in ("", {})}

    def updated(self, found: Mapping[str, Any]) -> "Config":
        """Returns the settings with those of a request; null removes a setting."""
        new = Config.parse(found)
        given = {_CONFIG[name][0] for name in found if name in _CONFIG}
        return Config(
            **{each.name: getattr(new if each.name in given else self, each.name) for each in fields(Config)}
        )

    def with_flags_of(self, other: "Config") -> "Config":
        """Returns this config, with the flags and the group of `other` where this one has none."""
        inherited = ("normalize", "validate_fields", "validate_new_schemas", "validate_rules", "group")
        missing = {name: getattr(other, name) for name in inherited if getattr(self, name) is None}
        return replace(self, **missing)

    @property
    def changes_schemas(self) -> bool:
        """Whether metadata or rules are added to each schema that is registered."""
        added = (self.default_metadata, self.override_metadata, self.default_rule_set, self.override_rule_set)
        return any(each is not None for each in added)


def _read_text(found: Any) -> str | None:
    if found is not None and not isinstance(found, str):
        raise SchemaRejected(f"a text is expected, not {str(found)[:100]}")
    return found


def _read_flag(found: Any) -> bool | None:
    if found is not None and not isinstance(found, bool):
        raise SchemaRejected(f"true or false is expected, not {str(found)[:100]}")
    return found


def _read_level(found: Any) -> Level | None:
    return None if found is None else Level.parse(found)


_CONFIG: Final[Mapping[str, tuple[str, Any]]] = {
    "alias": ("alias", _read_text),
    "normalize": ("normalize", _read_flag),
    "validateFields": ("validate_fields", _read_flag),
    "validateNewSchemas": ("validate_new_schemas", _read_flag),
    "validateRules": ("validate_rules", _read_flag),
    "compatibilityLevel": ("level", _read_level),
    "compatibilityGroup": ("group", _read_text),
    "defaultMetadata": ("default_metadata", Metadata.parse),
    "overrideMetadata": ("override_metadata", Metadata.parse),
    "defaultRuleSet": ("default_rule_set", RuleSet.parse),
    "overrideRuleSet": ("override_rule_set", RuleSet.parse),
}
"""The settings by their JSON names: the field of Config, and the function that reads it. In Confluent's order."""

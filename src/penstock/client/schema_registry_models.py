"""Values of a schema registry's REST API: schemas, references, versions and settings, and their JSON."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

AVRO: Final = "AVRO"
JSON_SCHEMA: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
LATEST: Final = -1
"""Version that means the latest one which is not deleted."""
LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
"""The compatibility levels."""
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")

_ABOUT_THE_CHECK: Final = ("{oldSchemaVersion:", "{oldSchema:", "{validateFields:")
_OLD_VERSION: Final = re.compile(r"\{oldSchemaVersion: (\d{1,10})\}")

Json = Mapping[str, Any]
"""A JSON object of the registry that this client passes on as it is."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference from a schema to a version of another subject."""

    name: str
    """How the schema names it: a full name in Avro, the value of `$ref` in JSON Schema, a file in Protobuf."""
    subject: str
    version: int

    @classmethod
    def parse(cls, found: Json) -> Self:
        return cls(str(found["name"]), str(found["subject"]), int(found["version"]))

    def json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as a client registers it.

    >>> Schema(text='{"type": "string"}').type
    'AVRO'
    """

    text: str
    type: str = AVRO
    references: tuple[SchemaReference, ...] = ()
    metadata: Json | None = field(default=None, hash=False)
    """Properties, tags and sensitive fields, as the REST API shows them."""
    rule_set: Json | None = field(default=None, hash=False)

    @classmethod
    def parse(cls, found: Json) -> Self:
        return cls(
            text=str(found["schema"]),
            type=str(found.get("schemaType") or AVRO),
            references=tuple(SchemaReference.parse(each) for each in found.get("references") or ()),
            metadata=found.get("metadata"),
            rule_set=found.get("ruleSet"),
        )

    def json(self) -> dict[str, Any]:
        """Returns the body of a request with this schema."""
        found: dict[str, Any] = {"schema": self.text, "schemaType": self.type}
        if self.references:
            found["references"] = [each.json() for each in self.references]
        if self.metadata is not None:
            found["metadata"] = dict(self.metadata)
        if self.rule_set is not None:
            found["ruleSet"] = dict(self.rule_set)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema with its id; `subject` and `version` say where it was found."""

    id: int
    schema: Schema
    subject: str = ""
    """Empty if it was found by its id alone: an id may be that of versions of several subjects."""
    version: int = 0
    """0 if it was found by its id alone."""
    guid: str = ""
    """The schema's id in any registry; empty if this registry has none."""
    is_deleted: bool = False
    """Whether the version is soft-deleted."""

    @classmethod
    def parse(cls, found: Json, *, schema_id: int = 0) -> Self:
        """Reads a response. `schema_id`: the id that was asked for, which some responses do not have."""
        return cls(
            id=int(found["id"]) if "id" in found else schema_id,
            schema=Schema.parse(found),
            subject=str(found.get("subject") or ""),
            version=int(found.get("version") or 0),
            guid=str(found.get("guid") or ""),
            is_deleted=found.get("deleted") is True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """Whether a schema could be registered, and if not, why."""

    is_compatible: bool
    messages: tuple[str, ...] = ()
    """The reasons, as the registry shows them. The last ones name the earlier version, its text, and the level."""

    @property
    def reasons(self) -> list[str]:
        """The messages without those about the earlier version and the settings."""
        return [each for each in self.messages if not each.startswith(_ABOUT_THE_CHECK)]

    @property
    def old_version(self) -> int | None:
        """The version that the schema is not compatible with; None if the messages do not tell."""
        return next((int(found[1]) for each in self.messages if (found := _OLD_VERSION.match(each))), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """Settings of a subject, a context or the whole registry."""

    level: str | None = None
    """The compatibility level; None if the response has none."""
    settings: Json = field(default_factory=dict, hash=False)
    """All settings by their names in requests, among them `compatibility`, the level."""

    @classmethod
    def parse(cls, found: Json) -> Self:
        settings = {"compatibility" if name == "compatibilityLevel" else name: found[name] for name in found}
        return cls(level=settings.get("compatibility"), settings=settings)


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A schema that another one refers to, directly or through others."""

    name: str
    found: RegisteredSchema


def context_of(subject: str) -> str:
    """Returns the prefix of a subject that is its context; "" for the default context.

    >>> context_of(":.staging:orders-value")
    ':.staging:'
    """
    if not subject.startswith(":."):
        return ""
    context, _, _ = subject[1:].partition(":")
    return "" if context == "." else f":{context}:"


def resolve_subject(parent: str, reference: str) -> str:
    """Returns the subject that a reference in a schema of subject `parent` means: one without a context of its own is
    in the same context.

    >>> resolve_subject(":.staging:orders-value", "customer-value")
    ':.staging:customer-value'
    """
    is_qualified = reference.startswith(":.") and not reference.startswith(":.:")
    return reference if is_qualified else context_of(parent) + reference.removeprefix(":.:")

"""Jobs for the process that parses and compares schemas: their requests and results."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.schemas.registry.model import Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSource:
    """A schema's text with the texts of all schemas that it refers to."""

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of each reference, also of indirect ones; a schema comes after those it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseJob:
    """Asks for the canonical text of a schema. The result is a str."""

    source: SchemaSource
    normalize: bool = False
    validate: bool = True
    """Whether the schema must be one that may be registered; False in mode IMPORT."""
    validate_fields: bool = False
    layout: str = ""
    """The layout of the result, such as `resolved` (Avro) or `serialized` (Protobuf); "" for the canonical text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """An earlier version that a schema is compared with."""

    version: int
    source: SchemaSource


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareJob:
    """Asks whether a schema is compatible with earlier versions, and whether it is the same as one. The result is a
    Comparison."""

    source: SchemaSource
    reads_old: bool = False
    is_read_by_old: bool = False
    previous: tuple[Previous, ...] = ()
    """The versions to compare with, the latest first. The first one that is incompatible ends the check."""
    candidates: tuple[Previous, ...] = ()
    """Versions that may be the same schema, written with references instead of their texts."""
    validate_fields: bool = False
    """Whether reserved fields of the latest version are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a CompareJob."""

    same_version: int | None = None
    messages: tuple[str, ...] = ()
    """Why the schema is incompatible; empty if it is compatible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedReferences:
    """The references of a schema, each with the version that it means now, and the texts they lead to."""

    references: tuple[Reference, ...]
    revisions: tuple[tuple[str, int], ...]
    """The subjects of `references`, with the revisions that they were resolved at."""
    texts: Mapping[str, str]

"""Dialects of JSON Schema: which draft a document declares with `$schema`."""

from enum import Enum
from typing import Any, Final

from penstock.schemas.formats.json_schema.documents import Json, print_document


class Dialect(Enum):
    """A group of drafts that are read alike. The values are ordered by age."""

    DRAFT_4 = 4
    DRAFT_6 = 6
    DRAFT_7 = 7
    MODERN = 2019
    """Drafts 2019-09 and 2020-12."""

    @property
    def id_keyword(self) -> str:
        return "id" if self is Dialect.DRAFT_4 else "$id"


DEFAULT: Final = Dialect.DRAFT_7
"""For documents that name none, or an unknown one."""
_CLASSIC: Final = (
    ("json-schema.org/draft-04/schema", Dialect.DRAFT_4),
    ("json-schema.org/schema", Dialect.DRAFT_4),
    ("json-schema.org/draft-06/schema", Dialect.DRAFT_6),
    ("json-schema.org/draft-07/schema", Dialect.DRAFT_7),
)
_MODERN: Final = ("json-schema.org/draft/2019-09/schema", "json-schema.org/draft/2020-12/schema")
_KNOWN: Final = {
    f"{scheme}://{address}": dialect
    for scheme in ("http", "https")
    for address, dialect in (*_CLASSIC, *((address, Dialect.MODERN) for address in _MODERN))
}


def declared_dialect(document: dict[str, Any]) -> Dialect:
    """Returns the dialect by which a schema is loaded."""
    return dialect_of_address(as_text(document.get("$schema", ""))) or DEFAULT


def dialect_of_address(address: str) -> Dialect | None:
    """Returns the dialect of a metaschema's address, with or without `#` at its end; None if it is unknown."""
    return _KNOWN.get(address.removesuffix("#"))


def classic_dialect(address: str) -> Dialect | None:
    """Returns the dialect whose metaschema has an address that `address` starts with, among drafts 4 to 7."""
    rest = address.removeprefix("https://") if address.startswith("https://") else address.removeprefix("http://")
    if rest == address:
        return None
    return next((dialect for start, dialect in _CLASSIC if rest.startswith(start)), None)


def as_text(value: Json) -> str:
    """Returns the text of a value as Jackson's `asText` does: empty for arrays and objects."""
    if isinstance(value, str):
        return value
    return "" if isinstance(value, dict | list) else print_document(value)

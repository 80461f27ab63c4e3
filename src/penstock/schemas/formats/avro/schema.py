"""Parsed Avro schemas: what the registry stores, compares and shows."""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.schemas.formats.avro.compatibility import Side, find_differences
from penstock.schemas.formats.avro.equality import SameSchemas
from penstock.schemas.formats.avro.model import Definition, Schema, Types, kind_of
from penstock.schemas.formats.avro.normal_form import print_normal_form
from penstock.schemas.formats.avro.parser import Parser
from penstock.schemas.formats.avro.printer import print_schema
from penstock.schemas.formats.avro.validation import validate_new
from penstock.schemas.formats.format import Difference, InvalidSchema

TEXT_CHARS_MAX: Final = 8_000_000
"""Length of a schema with those it refers to: eight messages of the default size, in 200 MB of memory."""


class AvroSchema:
    """An Avro schema with the named types that it uses. Immutable."""

    __slots__ = ("_known", "_references", "_size", "_texts", "root", "text", "types")

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        if len(text) + sum(map(len, references.values())) > TEXT_CHARS_MAX:
            raise InvalidSchema(f"The schema with its references has more than {TEXT_CHARS_MAX} characters.")
        parser = Parser()
        known = [parser.parse(reference) for reference in references.values()]
        self.root: Final[Definition] = parser.parse(text)
        """The schema itself."""
        self.types: Final[Types] = parser.types
        """All named types, by full name: those of the references, too."""
        self._texts: Final[Sequence[Schema]] = parser.texts
        self._size: Final = parser.size
        self._references: Final = dict(references)
        self._known: Final = {getattr(schema, "name", None) or kind_of(schema, {}) for schema in known}
        self.text: Final = print_schema(self.root, self.types, self._known)

    def normalized(self) -> "AvroSchema":
        return AvroSchema(print_normal_form(self.root, self.types, self._known), self._references)

    def formatted(self, name: str) -> str:
        match name.strip().lower():
            case "resolved":
                return print_schema(self.root, self.types)
            case _:
                return self.text

    def validate(self, *, fields: bool) -> None:
        """Raises InvalidSchema if a new schema must not be registered.

        `fields` changes nothing: no field of a new schema may have a name that begins with `$`.
        """
        validate_new(self._texts, self.types)

    def is_same(self, other: "AvroSchema") -> bool:
        return SameSchemas(self.types, other.types, with_docs=True).is_same(self.root, other.root)

    def differences(self, writer: "AvroSchema") -> Sequence[Difference]:
        return find_differences(
            Side(self.root, self.types, self._size), Side(writer.root, writer.types, writer._size)
        )


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parses a schema; the named types of `references` are known in it. Raises InvalidSchema."""
    return AvroSchema(text, references)

"""JSON Schemas as the registry sees them."""

from collections.abc import Mapping, Sequence
from typing import Self

from penstock.schemas.formats.format import Difference, InvalidSchema
from penstock.schemas.formats.json_schema.classic_loader import load_classic
from penstock.schemas.formats.json_schema.comparison import Comparison, compare, flatten
from penstock.schemas.formats.json_schema.dialects import Dialect, declared_dialect
from penstock.schemas.formats.json_schema.documents import Json, check_encodable, print_document, read_document
from penstock.schemas.formats.json_schema.kinds import COMPATIBLE, LENIENT, describe
from penstock.schemas.formats.json_schema.loading import name_type
from penstock.schemas.formats.json_schema.modern_loader import load_modern
from penstock.schemas.formats.json_schema.rules import compare_pair
from penstock.schemas.formats.json_schema.schema_nodes import FalseNode, Node, ObjectNode, TrueNode


class JsonSchema:
    """A JSON Schema of any draft. Immutable; its nodes are loaded when they are needed."""

    def __init__(self, document: Json, text: str, references: Mapping[str, str]) -> None:
        self.text = text
        self._document = document
        self._references = references
        self._root: Node | None = None

    def normalized(self) -> Self:
        """Returns the schema with the keys of all objects in order."""
        text = print_document(self._document, is_sorted=True)
        return self if text == self.text else type(self)(read_document(text), text, self._references)

    def formatted(self, name: str) -> str:
        """Returns the text. JSON Schemas have one layout, and like Confluent's registry ignore other names."""
        return self.text

    def validate(self, *, fields: bool) -> None:
        root = self.root
        if fields and isinstance(root, ObjectNode):
            for name in root.properties:
                if name.startswith("$$"):
                    raise InvalidSchema(f"#/properties/{name[:200]}: the name of a field must not start with '$$'.")

    def is_same(self, other: Self) -> bool:
        """Whether the texts are the same: as in Confluent's registry, references are not replaced in them."""
        return self.text == other.text

    def differences(self, writer: Self, *, is_lenient: bool = False) -> Sequence[Difference]:
        """Returns why data written with schema `writer` cannot be read with this one.

        `is_lenient`: Confluent's lenient policy, in which properties may be added to and removed from all objects.
        """
        comparison = Comparison(LENIENT if is_lenient else COMPATIBLE)
        findings = compare(comparison, writer.root, self.root, compare_pair)
        return [Difference(kind, describe(kind, path)) for path, kind in flatten(findings)]

    @property
    def root(self) -> Node:
        """The loaded schema. Raises InvalidSchema if it is not valid."""
        if self._root is None:
            self._root = self._load()
        return self._root

    def _load(self) -> Node:
        document = self._document
        if isinstance(document, bool):
            return TrueNode() if document else FalseNode()
        if not isinstance(document, dict):
            raise InvalidSchema(f"A JSON Schema must be an object or a boolean, but this is {name_type(document)}.")
        load = load_modern if declared_dialect(document) is Dialect.MODERN else load_classic
        return load(document, self._references)


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parses a schema. As in Confluent's registry, only `validate` and `differences` look at its keywords."""
    document = read_document(text)
    canonical = print_document(document)
    check_encodable(canonical)
    return JsonSchema(document, canonical, references)

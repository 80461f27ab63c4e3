"""Nodes of a loaded JSON Schema: what Confluent's registry compares, for all drafts.

A JSON object becomes one node by the kinds of its keywords: one with keywords of several kinds, such as `type` and
`enum`, becomes a CombinedNode of them all. References stay nodes of their own, so a schema may be recursive.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from penstock.schemas.formats.json_schema.documents import Json


class Criterion(Enum):
    """How many members of a combined schema must match."""

    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""The default value of a schema without one: `null` is a default value, too."""
NOTHING: Final[Mapping[str, Json]] = {}


class Node:
    """A schema. `extra` holds the keywords that the loader does not know."""

    __slots__ = ("default", "description", "extra", "flags", "id", "title")

    def __init__(self) -> None:
        self.id: str | None = None
        self.title: str | None = None
        self.description: str | None = None
        self.default: Json = MISSING
        self.flags: tuple[bool | None, bool | None] | None = None
        """The values of readOnly and writeOnly."""
        self.extra: Mapping[str, Json] = NOTHING

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


class EmptyNode(Node):
    """`{}`: everything is valid."""

    __slots__ = ()


class TrueNode(EmptyNode):
    __slots__ = ()


class FalseNode(Node):
    __slots__ = ()


class BooleanNode(Node):
    __slots__ = ()


class NullNode(Node):
    __slots__ = ()


class StringNode(Node):
    """`is_required`: other types are invalid. Otherwise the keywords apply to strings only."""

    __slots__ = ("format", "is_required", "length_max", "length_min", "pattern")

    def __init__(self, *, is_required: bool) -> None:
        super().__init__()
        self.is_required = is_required
        self.length_min: int | None = None
        self.length_max: int | None = None
        self.pattern: str | None = None
        self.format: str | None = None


class NumberNode(Node):
    __slots__ = (
        "exclusive_max",
        "exclusive_min",
        "is_integer",
        "is_max_exclusive",
        "is_min_exclusive",
        "is_required",
        "maximum",
        "minimum",
        "multiple_of",
    )

    def __init__(self, *, is_required: bool, is_integer: bool = False) -> None:
        super().__init__()
        self.is_required = is_required
        self.is_integer = is_integer
        self.minimum: Any = None
        self.maximum: Any = None
        self.exclusive_min: Any = None
        self.exclusive_max: Any = None
        self.is_min_exclusive = False
        """`exclusiveMinimum: true` of draft 4."""
        self.is_max_exclusive = False
        self.multiple_of: Any = None


class ArrayNode(Node):
    """`prefix`: the schemas by position. `additional` is None if further items may be anything, or are refused."""

    __slots__ = (
        "additional",
        "allows_additional",
        "contains",
        "contains_max",
        "contains_min",
        "is_required",
        "is_unique",
        "items",
        "items_max",
        "items_min",
        "prefix",
        "unevaluated",
    )

    def __init__(self, *, is_required: bool) -> None:
        super().__init__()
        self.is_required = is_required
        self.items: Node | None = None
        self.prefix: list[Node] = []
        self.allows_additional = True
        self.additional: Node | None = None
        self.contains: Node | None = None
        self.contains_min: Any = None
        self.contains_max: Any = None
        self.items_min: int | None = None
        self.items_max: int | None = None
        self.is_unique = False
        self.unevaluated: Node | None = None


class ObjectNode(Node):
    """`requirements` are the names of `required` in their order; `dependencies` those of names, by name."""

    __slots__ = (
        "additional",
        "allows_additional",
        "dependencies",
        "is_required",
        "names",
        "patterns",
        "properties",
        "properties_max",
        "properties_min",
        "requirements",
        "schema_dependencies",
        "unevaluated",
    )

    def __init__(self, *, is_required: bool) -> None:
        super().__init__()
        self.is_required = is_required
        self.properties: dict[str, Node] = {}
        self.requirements: dict[str, None] = {}
        self.allows_additional = True
        self.additional: Node | None = None
        self.patterns: dict[str, Node] = {}
        self.properties_min: int | None = None
        self.properties_max: int | None = None
        self.dependencies: dict[str, frozenset[str]] = {}
        self.schema_dependencies: dict[str, Node] = {}
        self.names: Node | None = None
        self.unevaluated: Node | None = None


class CombinedNode(Node):
    """Members of which all, any or one must match.

    `is_generated`: made from several keywords of one JSON object, or from a list of types, by the loader of drafts
    2019-09 and 2020-12. `is_synthetic`: made from several keywords by the loader of drafts 4 to 7.
    """

    __slots__ = ("criterion", "is_generated", "is_synthetic", "members")

    def __init__(
        self, criterion: Criterion, members: list[Node], *, is_generated: bool = False, is_synthetic: bool = False
    ) -> None:
        super().__init__()
        self.criterion = criterion
        self.members = members
        self.is_generated = is_generated
        self.is_synthetic = is_synthetic


class NotNode(Node):
    __slots__ = ("member",)

    def __init__(self, member: Node) -> None:
        super().__init__()
        self.member = member


class ConditionalNode(Node):
    """`if`, `then` and `else`."""

    __slots__ = ("condition", "otherwise", "then")

    def __init__(self, condition: Node | None, then: Node | None, otherwise: Node | None) -> None:
        super().__init__()
        self.condition = condition
        self.then = then
        self.otherwise = otherwise


class ConstNode(Node):
    __slots__ = ("value",)

    def __init__(self, value: Json) -> None:
        super().__init__()
        self.value = value


class EnumNode(Node):
    __slots__ = ("values",)

    def __init__(self, values: list[Json]) -> None:
        super().__init__()
        self.values = values


class ReferenceNode(Node):
    """A `$ref`. `target` is filled in by the loader, and may be this very node's parent."""

    __slots__ = ("reference", "target")

    def __init__(self, reference: str, target: Node) -> None:
        super().__init__()
        self.reference = reference
        self.target = target

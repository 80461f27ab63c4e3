"""Tells which members of a combined schema are the same, as Confluent's registry does: by what they print.

Two schemas are the same if all their keywords are; the order of keys does not count. References are the same if they
are written alike.
"""

from collections.abc import Hashable
from decimal import Decimal
from typing import Any, Final

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema.documents import Json, print_document
from penstock.schemas.formats.json_schema.schema_nodes import (
    MISSING,
    ArrayNode,
    CombinedNode,
    ConditionalNode,
    ConstNode,
    EmptyNode,
    EnumNode,
    FalseNode,
    Node,
    NotNode,
    NumberNode,
    ObjectNode,
    ReferenceNode,
    StringNode,
    TrueNode,
)

PRINTED_CHARS_MAX: Final = 16_000_000
"""Characters of values and unknown keywords that may be printed in one comparison."""


class Fingerprints:
    """Numbers nodes so that equal ones have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, int] = {}
        self._chars_left = PRINTED_CHARS_MAX

    def of(self, node: Node) -> int:
        """Returns the number of a node. Without recursion: members first."""
        stack = [node]
        while stack:
            last = stack[-1]
            if id(last) in self._known:
                stack.pop()
                continue
            children = _children(last)
            unknown = [child for child in children if id(child) not in self._known]
            if unknown:
                stack += unknown
                continue
            kind = EmptyNode if _says_nothing(last) else type(last)
            keywords = () if kind is EmptyNode else self._keywords(last)
            key: Hashable = (
                kind.__name__,
                *self._facts(last),
                *keywords,
                *(self._known[id(child)] for child in children),
            )
            self._known[id(last)] = self._numbers.setdefault(key, len(self._numbers))
            stack.pop()
        return self._known[id(node)]

    def _facts(self, node: Node) -> tuple[Hashable, ...]:
        if isinstance(node, TrueNode | FalseNode):
            return ()
        default = None if node.default is MISSING else self._print(node.default)
        extra = self._print(dict(node.extra)) if node.extra else None
        return (node.id, node.title, node.description, node.flags, default, extra)

    def _keywords(self, node: Node) -> tuple[Hashable, ...]:
        match node:
            case StringNode():
                return (node.is_required, node.length_min, node.length_max, node.pattern, node.format)
            case NumberNode():
                limits = (node.minimum, node.maximum, node.exclusive_min, node.exclusive_max, node.multiple_of)
                exclusive = (node.is_min_exclusive, node.is_max_exclusive)
                return (*map(_print_number, limits), *exclusive, node.is_required, node.is_integer)
            case ArrayNode():
                return _array_keywords(node)
            case ObjectNode():
                return _object_keywords(node)
            case CombinedNode():
                return (node.criterion, node.is_synthetic, len(node.members))
            case ConditionalNode():
                return (node.condition is None, node.then is None, node.otherwise is None)
            case EnumNode():
                return (frozenset(self._print(value) for value in node.values),)
            case ConstNode():
                return (self._print(node.value),)
            case ReferenceNode():
                return (node.reference,)
        return ()

    def _print(self, value: Json) -> str:
        text = print_document(value, is_sorted=True)
        self._chars_left -= len(text)
        if self._chars_left < 0:
            raise InvalidSchema("The schemas are too complex to be compared: too many values in combined schemas.")
        return text


def _array_keywords(node: ArrayNode) -> tuple[Hashable, ...]:
    slots = (node.items, node.additional, node.contains, node.unevaluated)
    sizes = (node.items_min, node.items_max, node.contains_min, node.contains_max, len(node.prefix))
    return (*(slot is None for slot in slots), *sizes, node.is_required, node.is_unique, node.allows_additional)


def _object_keywords(node: ObjectNode) -> tuple[Hashable, ...]:
    slots = (node.additional, node.names, node.unevaluated)
    sizes = (node.properties_min, node.properties_max, node.is_required, node.allows_additional)
    names = (tuple(node.requirements), *map(_names, (node.properties, node.patterns, node.schema_dependencies)))
    return (*(slot is None for slot in slots), *sizes, *names, frozenset(node.dependencies.items()))


def _says_nothing(node: Node) -> bool:
    """Whether a node of keywords of one type prints like an empty schema, as one of an unknown `format` does."""
    if not isinstance(node, StringNode | NumberNode | ArrayNode | ObjectNode) or node.is_required:
        return False
    blank = type(node)(is_required=False)
    return all(getattr(node, slot) == getattr(blank, slot) for slot in type(node).__slots__)


def _children(node: Node) -> list[Node]:
    found: list[Node | None] = []
    match node:
        case ArrayNode():
            found = [*node.prefix, node.items, node.additional, node.contains, node.unevaluated]
        case ObjectNode():
            for children in (node.properties, node.patterns, node.schema_dependencies):
                found += [children[name] for name in sorted(children)]
            found += [node.additional, node.names, node.unevaluated]
        case CombinedNode():
            found = [*node.members]
        case NotNode():
            found = [node.member]
        case ConditionalNode():
            found = [node.condition, node.then, node.otherwise]
    return [child for child in found if child is not None]


def _names(children: dict[str, Node]) -> tuple[str, ...]:
    return tuple(sorted(children))


def _print_number(value: Any) -> str | None:
    """Returns a number without zeros at the end of its fraction: 1.50 prints as 1.5."""
    if not isinstance(value, Decimal):
        return None if value is None else str(value)
    text = str(value)
    return text if "E" in text else text.rstrip("0").rstrip(".")

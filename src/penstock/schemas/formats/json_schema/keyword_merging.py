"""Merges the keywords of one JSON object into one node, in the order in which Confluent's translation meets them.

Confluent translates schemas of drafts 2019-09 and 2020-12 keyword by keyword: each becomes a schema, and neighbours
of the same type are merged. What cannot be merged becomes a generated `allOf`. The result depends on the order, and
the order is that of a Java HashMap, so both are reproduced here.
"""

from typing import Final

from penstock.schemas.formats.json_schema.documents import Json
from penstock.schemas.formats.json_schema.loading import is_generated
from penstock.schemas.formats.json_schema.schema_nodes import (
    ArrayNode,
    CombinedNode,
    Criterion,
    Node,
    NumberNode,
    ObjectNode,
    StringNode,
)

_PART_KEYWORDS: Final = (
    "$ref additionalProperties type required not minLength maxLength minItems maxItems minProperties maxProperties "
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf enum dependentRequired format propertyNames "
    "pattern dependentSchemas if contains prefixItems items oneOf anyOf allOf uniqueItems const readOnly writeOnly"
)
"""Keywords that become schemas."""
_SLOTS: Final = {
    StringNode: ("length_min", "length_max", "pattern"),
    NumberNode: ("minimum", "maximum", "exclusive_min", "exclusive_max", "multiple_of"),
    ArrayNode: (
        "items",
        "additional",
        "contains",
        "contains_max",
        "contains_min",
        "items_max",
        "items_min",
        "unevaluated",
    ),
    ObjectNode: ("additional", "names", "properties_max", "properties_min", "unevaluated"),
}
_MERGED: Final = (StringNode, NumberNode, ArrayNode, ObjectNode)


def generated_all(members: list[Node]) -> CombinedNode:
    return CombinedNode(Criterion.ALL, members, is_generated=True)


def join(left: Node, right: Node) -> Node:
    """Returns the node for what both say. Changes `left`."""
    if type(left) is type(right) and isinstance(left, _MERGED):
        _merge(left, right)
        return left
    for union, other in ((left, right), (right, left)):
        if isinstance(union, CombinedNode) and is_generated(union, Criterion.ANY) and _has_type(union, other):
            _add(union.members, other)
            return CombinedNode(Criterion.ANY, union.members, is_generated=True)
    gathered: list[Node] = []
    for node in (*_members(left), *_members(right)):
        _add(gathered, node)
    return generated_all(gathered)


def in_java_order(raw: dict[str, Json]) -> list[str]:
    """Returns the keywords that become schemas, in the order of a java.util.HashMap that holds this object."""
    buckets = 16
    while len(raw) > buckets * 3 // 4:
        buckets *= 2
    return sorted((name for name in raw if name in _HASHES), key=lambda name: _HASHES[name] & (buckets - 1))


def _add(nodes: list[Node], node: Node) -> None:
    """Merges a node into the first one of its type, if there is one that can be merged; otherwise appends it."""
    same = next((item for item in nodes if type(item) is type(node)), None)
    if same is not None and isinstance(same, _MERGED):
        _merge(same, node)
    else:
        nodes.append(node)


def _members(node: Node) -> list[Node]:
    return node.members if isinstance(node, CombinedNode) and is_generated(node, Criterion.ALL) else [node]


def _has_type(union: CombinedNode, node: Node) -> bool:
    return any(type(member) is type(node) for member in union.members)


def _merge(node: Node, other: Node) -> None:
    """Adds what `other` says to `node`, which is of the same type."""
    for slot in _SLOTS[type(node)]:
        value = getattr(other, slot)
        if value is not None:
            setattr(node, slot, value)
    node.is_required = node.is_required or other.is_required  # type: ignore[attr-defined]
    if isinstance(node, NumberNode) and isinstance(other, NumberNode):
        node.is_integer = node.is_integer or other.is_integer
    elif isinstance(node, ArrayNode) and isinstance(other, ArrayNode):
        node.prefix += other.prefix
        node.allows_additional = node.allows_additional and other.allows_additional
        node.is_unique = node.is_unique or other.is_unique
    elif isinstance(node, ObjectNode) and isinstance(other, ObjectNode):
        node.properties |= other.properties
        node.patterns |= other.patterns
        node.requirements |= other.requirements
        node.allows_additional = node.allows_additional and other.allows_additional
        node.dependencies |= other.dependencies
        node.schema_dependencies |= other.schema_dependencies


def _hash(text: str) -> int:
    """Returns the hash of a string in a java.util.HashMap."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value ^ value >> 16


_HASHES: Final = {name: _hash(name) for name in _PART_KEYWORDS.split()}

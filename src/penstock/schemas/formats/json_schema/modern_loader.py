"""Loads schemas of drafts 2019-09 and 2020-12, with the rules of json-sKema and of Confluent's translation of them.

Formats, `readOnly`, `writeOnly`, `then` and `else` without `if`, and `$recursiveRef` say nothing here, as there. A
`$dynamicRef` refers to the anchor of its own document.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from penstock.schemas.formats.json_schema.documents import Json
from penstock.schemas.formats.json_schema.keyword_merging import generated_all, in_java_order, join
from penstock.schemas.formats.json_schema.limit_numbers import to_int
from penstock.schemas.formats.json_schema.loading import (
    Loader,
    Pending,
    bridge_definitions,
    fail,
    require,
    require_number,
    require_strings,
    require_types,
)
from penstock.schemas.formats.json_schema.modern_documents import KEYWORDS, Library, Scope
from penstock.schemas.formats.json_schema.schema_nodes import (
    ArrayNode,
    BooleanNode,
    CombinedNode,
    ConditionalNode,
    ConstNode,
    Criterion,
    EmptyNode,
    EnumNode,
    Node,
    NotNode,
    NullNode,
    NumberNode,
    ObjectNode,
    ReferenceNode,
    StringNode,
)


def load_modern(root: dict[str, Json], references: Mapping[str, str]) -> Node:
    """Returns the nodes of a schema of draft 2019-09 or 2020-12. `references`: other schemas, by name."""
    return _ModernLoader(Library(bridge_definitions(root), references)).load()


class _ModernLoader(Loader):
    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library
        self._made: dict[tuple[int, str], Node] = {}

    def load(self) -> Node:
        root = self._load(self.library.root)
        loaded = 0
        while len(self.library.anchors) > loaded:  # loading one may read another document, with anchors of its own
            anchors = list(self.library.anchors.values())[loaded:]
            loaded += len(anchors)
            self._later(generated_all([*anchors]))
            self._work()
        return root

    def _make_object(self, pending: Pending) -> Node:
        scope: Scope = pending.scope.enter(pending.raw)
        key = (id(pending.raw), scope.key)
        node = self._made.get(key)
        if node is None:
            node = self._made[key] = _Keywords(pending.raw, scope, pending.where, self).node()
            self._spend(len(pending.raw))
        return node

    def add(self, node: Node, children: int) -> None:
        """Has the children of a node made, which are so many."""
        self._spend(children)
        self._later(node)


class _Keywords:
    """The keywords of one JSON object."""

    def __init__(self, raw: dict[str, Json], scope: Scope, where: Any, loader: _ModernLoader) -> None:
        self._raw = raw
        self._scope = scope
        self._where = where
        self._loader = loader

    def node(self) -> Node:
        raw = self._raw
        node: Node | None = None
        for name in in_java_order(raw) if self._scope.is_main else raw:
            part = self._part(name)
            if part is not None:
                node = part if node is None else join(node, part)
        node = self._with_members(node or generated_all([]))
        for part in _parts(node):
            self._loader.add(part, _count(part))
        if isinstance(node, CombinedNode) and node.is_generated and node.criterion is Criterion.ALL:
            if not node.members:
                node = EmptyNode()
            elif len(node.members) == 1:
                node = node.members[0]
        self._describe(node)
        if "$dynamicRef" in raw:
            target = ReferenceNode("", self._loader.library.find(self._text("$dynamicRef"), self._scope, self._where))
            self._loader.add(target, 1)
            return join(target, node)
        return node

    def _with_members(self, node: Node) -> Node:
        """Adds the keywords that come after all others."""
        raw = self._raw
        if "properties" in raw:
            properties = self._map("properties")
            if properties:
                node = join(node, _object(properties=properties))
        if "patternProperties" in raw:
            patterns = self._map("patternProperties")
            for pattern in patterns:
                self._loader.check_pattern(pattern)
            if patterns:
                node = join(node, _object(patterns=patterns))
        if "unevaluatedItems" in raw:
            node = join(node, _array(unevaluated=self._child("unevaluatedItems")))
        if "unevaluatedProperties" in raw:
            node = join(node, _object(unevaluated=self._child("unevaluatedProperties")))
        return node

    def _describe(self, node: Node) -> None:
        """Sets what all kinds of schemas may have."""
        raw = self._raw
        if "title" in raw:
            node.title = self._text("title")
        if "description" in raw:
            node.description = self._text("description")
        if "$dynamicAnchor" in raw:
            self._text("$dynamicAnchor")
        if "deprecated" in raw:
            require(raw["deprecated"], bool, self._where, "deprecated")
        if raw.get("default") is not None and not isinstance(node, ReferenceNode):
            node.default = raw["default"]
        extra = {name: item for name, item in raw.items() if name not in KEYWORDS}
        definitions = self._map("$defs") if "$defs" in raw else {}
        if definitions:
            # Nothing refers to them by this, but all must be valid.
            self._loader.add(generated_all(list(definitions.values())), len(definitions))
            extra = extra | {"$defs": raw["$defs"]}
        if extra:
            node.extra = extra
            # In Confluent's translation, unknown keywords replace these.
            if isinstance(node, ArrayNode | ObjectNode) and node.unevaluated is not None:
                self._loader.add(generated_all([node.unevaluated]), 1)
                node.unevaluated = None
            if isinstance(node, ArrayNode):
                node.contains_min = node.contains_max = None

    def _part(self, name: str) -> Node | None:
        """Returns the node of one keyword; None if the keyword is not one that becomes a node."""
        raw, where = self._raw, self._where
        match name:
            case "$ref":
                reference = self._text(name)
                return ReferenceNode(reference, self._loader.library.find(reference, self._scope, where))
            case "type":
                return self._typed()
            case "enum":
                return EnumNode(require(raw[name], list, where, name))
            case "const":
                return ConstNode(raw[name])
            case "not":
                return NotNode(self._child(name))
            case "if":
                return ConditionalNode(*(self._child(key) if key in raw else None for key in ("if", "then", "else")))
            case "allOf" | "anyOf" | "oneOf":
                return CombinedNode(Criterion(name), self._list(name))
            case "format":
                self._text(name)
                return generated_all([])
            case "readOnly" | "writeOnly":
                return generated_all([]) if require(raw[name], bool, where, name) else None
            case "minLength" | "maxLength" | "pattern":
                return self._string(name)
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf":
                return self._number(name)
            case "minItems" | "maxItems" | "uniqueItems" | "items" | "prefixItems" | "contains":
                return self._array(name)
            case (
                "minProperties"
                | "maxProperties"
                | "required"
                | "additionalProperties"
                | "propertyNames"
                | "dependentRequired"
                | "dependentSchemas"
            ):
                return self._object(name)
        return None

    def _typed(self) -> Node:
        names = self._raw["type"]
        if isinstance(names, str):
            return self._of_type(names)
        members = [self._of_type(name) for name in require_types(names, self._where)]
        return CombinedNode(Criterion.ANY, members, is_generated=True)

    def _of_type(self, name: str) -> Node:
        match name:
            case "string":
                return StringNode(is_required=True)
            case "integer" | "number":
                return NumberNode(is_required=True, is_integer=name == "integer")
            case "boolean":
                return BooleanNode()
            case "null":
                return NullNode()
            case "array":
                return ArrayNode(is_required=True)
            case "object":
                return ObjectNode(is_required=True)
        return fail(self._where, f"{name[:200]!r} is not a type")

    def _string(self, name: str) -> Node:
        node = StringNode(is_required=False)
        if name == "pattern":
            node.pattern = self._text(name)
            self._loader.check_pattern(node.pattern)
        elif name == "minLength":
            node.length_min = self._size(name)
        else:
            node.length_max = self._size(name)
        return node

    def _number(self, name: str) -> Node:
        node = NumberNode(is_required=False)
        slots = {
            "minimum": "minimum",
            "maximum": "maximum",
            "exclusiveMinimum": "exclusive_min",
            "exclusiveMaximum": "exclusive_max",
            "multipleOf": "multiple_of",
        }
        setattr(node, slots[name], require_number(self._raw[name], self._where, name))
        return node

    def _array(self, name: str) -> Node:
        raw = self._raw
        match name:
            case "minItems":
                return _array(items_min=self._size(name))
            case "maxItems":
                return _array(items_max=self._size(name))
            case "uniqueItems":
                return _array(is_unique=require(raw[name], bool, self._where, name))
            case "prefixItems":
                return _array(prefix=self._list(name))
            case "contains":
                least, most = raw.get("minContains"), raw.get("maxContains")
                return _array(
                    contains=self._child(name),
                    contains_min=least if _is_number(least) else 1,
                    contains_max=most if _is_number(most) else None,
                )
        if isinstance(raw[name], bool):
            return _array(allows_additional=raw[name])
        has_prefix = isinstance(raw.get("prefixItems"), list) and raw["prefixItems"]
        return _array(additional=self._child(name)) if has_prefix else _array(items=self._child(name))

    def _object(self, name: str) -> Node:
        raw, where = self._raw, self._where
        match name:
            case "minProperties":
                return _object(properties_min=self._size(name))
            case "maxProperties":
                return _object(properties_max=self._size(name))
            case "required":
                return _object(requirements=dict.fromkeys(require_strings(raw[name], where, name)))
            case "propertyNames":
                return _object(names=self._child(name))
            case "dependentSchemas":
                return _object(schema_dependencies=self._map(name))
            case "dependentRequired":
                names = require(raw[name], dict, where, name)
                needed = {key: frozenset(require_strings(item, (where, name), key)) for key, item in names.items()}
                return _object(dependencies={key: item for key, item in needed.items() if item})
        if isinstance(raw[name], bool):
            return _object(allows_additional=raw[name])
        return _object(additional=self._child(name))

    def _text(self, name: str) -> str:
        return require(self._raw[name], str, self._where, name)

    def _size(self, name: str) -> int:
        return to_int(require_number(self._raw[name], self._where, name))

    def _child(self, name: str) -> Node:
        return self._pending(self._raw[name], (self._where, name))

    def _list(self, name: str) -> list[Node]:
        where = (self._where, name)
        items = require(self._raw[name], list, self._where, name)
        return [self._pending(item, (where, str(index))) for index, item in enumerate(items)]

    def _map(self, name: str) -> dict[str, Node]:
        where = (self._where, name)
        items = require(self._raw[name], dict, self._where, name)
        return {key: self._pending(item, (where, key)) for key, item in items.items()}

    def _pending(self, raw: Json, where: Any) -> Node:
        if raw.__class__ is dict and "$schema" in raw:
            address = require(raw["$schema"], str, where, "$schema")
            if not self._loader.library.knows(address):
                fail(where, f"the '$schema' {address[:200]!r} is not known")
        return Pending(raw, self._scope, where)


def _array(**slots: Any) -> ArrayNode:
    node = ArrayNode(is_required=False)
    for slot, value in slots.items():
        setattr(node, slot, value)
    return node


def _object(**slots: Any) -> ObjectNode:
    node = ObjectNode(is_required=False)
    for slot, value in slots.items():
        setattr(node, slot, value)
    return node


def _parts(node: Node) -> list[Node]:
    """Returns the nodes that a generated node consists of."""
    if not isinstance(node, CombinedNode) or not node.is_generated:
        return [node]
    return [part for member in node.members for part in _parts(member)]


def _count(node: Node) -> int:
    if isinstance(node, ObjectNode):
        return len(node.properties) + len(node.patterns) + len(node.schema_dependencies)
    if isinstance(node, ArrayNode):
        return len(node.prefix)
    return len(node.members) if isinstance(node, CombinedNode) else 1


def _is_number(value: Json) -> bool:
    return value.__class__ is int or value.__class__ is Decimal

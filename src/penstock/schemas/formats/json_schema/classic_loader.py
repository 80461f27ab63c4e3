"""Loads schemas of drafts 4, 6 and 7, with the rules of everit-json-schema, which Confluent's registry uses for them.

Every keyword must be of the right type, except that unknown keywords are kept as they are. Next to `$ref`, other
keywords than the descriptive ones are ignored.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from penstock.schemas.formats.json_schema.classic_documents import Document, Library, Scope
from penstock.schemas.formats.json_schema.dialects import Dialect, classic_dialect
from penstock.schemas.formats.json_schema.documents import Json
from penstock.schemas.formats.json_schema.limit_numbers import to_double
from penstock.schemas.formats.json_schema.loading import (
    Loader,
    Pending,
    bridge_definitions,
    fail,
    name_type,
    require,
    require_number,
    require_strings,
    require_types,
)
from penstock.schemas.formats.json_schema.schema_nodes import (
    MISSING,
    NOTHING,
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

_ARRAYS: Final = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems")
_OBJECTS: Final = (
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "patternProperties",
    "additionalProperties",
)
_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRINGS: Final = ("minLength", "maxLength", "pattern", "format")
_CONDITIONS: Final = ("if", "then", "else")
_FORMATS_4: Final = frozenset(("date-time", "uri", "email", "ipv4", "ipv6", "hostname"))
_FORMATS_6: Final = _FORMATS_4 | {"json-pointer", "uri-reference", "uri-template"}
_FORMATS: Final = {
    Dialect.DRAFT_4: _FORMATS_4,
    Dialect.DRAFT_6: _FORMATS_6,
    Dialect.DRAFT_7: _FORMATS_6 | {"date", "time", "regex", "relative-json-pointer"},
}


def load_classic(root: dict[str, Json], references: Mapping[str, str]) -> Node:
    """Returns the nodes of a schema of draft 4, 6 or 7. `references`: other schemas by name. Raises InvalidSchema."""
    raw = bridge_definitions(root)
    address = raw.get("$schema")
    dialect = Dialect.DRAFT_7
    if "$schema" in raw:
        dialect = classic_dialect(require(address, str, (), "$schema")) or dialect
    document = Document(raw, None, dialect)
    return _ClassicLoader(Library(raw, references)).load(document)


class _ClassicLoader(Loader):
    def __init__(self, library: Library) -> None:
        super().__init__()
        self._library = library
        self._made: dict[tuple[int, str | None, Dialect], Node] = {}

    def load(self, document: Document) -> Node:
        return self._load(Pending(document.root, document.scope, ()))

    def _make_object(self, pending: Pending) -> Node:
        scope: Scope = pending.scope.enter(pending.raw)
        key = (id(pending.raw), scope.key, scope.document.dialect)
        node = self._made.get(key)
        if node is None:
            node = self._made[key] = _Keywords(pending.raw, scope, pending.where, self).node()
            self._spend(len(pending.raw))
        return node

    def refer(self, reference: str, scope: Scope, where: Any) -> Node:
        node = ReferenceNode(reference, self._library.find(reference, scope, where))
        self._later(node)
        return node

    def add(self, node: Node, children: int) -> Node:
        """Has the children of a node made, which are so many."""
        self._spend(children)
        self._later(node)
        return node


class _Keywords:
    """The keywords of one JSON object, and those of them that are used up."""

    def __init__(self, raw: dict[str, Json], scope: Scope, where: Any, loader: _ClassicLoader) -> None:
        self._raw = raw
        self._scope = scope
        self._where = where
        self._loader = loader
        self._dialect = scope.document.dialect
        is_draft_4 = self._dialect is Dialect.DRAFT_4
        self._arrays = _ARRAYS if is_draft_4 else (*_ARRAYS, "contains")
        self._objects = _OBJECTS if is_draft_4 else (*_OBJECTS, "propertyNames")
        self._used: set[str] = set()

    def node(self) -> Node:
        nodes = self._nodes()
        if not nodes:
            node: Node = EmptyNode()
        elif len(nodes) == 1:
            node = nodes[0]
        else:
            node = CombinedNode(Criterion.ALL, nodes, is_synthetic=True)
        self._describe(node)
        return node

    def _nodes(self) -> list[Node]:
        raw = self._raw
        if "$ref" in raw:
            self._used.add("$ref")
            return [self._loader.refer(require(raw["$ref"], str, self._where, "$ref"), self._scope, self._where)]
        nodes: list[Node] = []
        if "enum" in raw:
            self._used.add("enum")
            nodes.append(EnumNode(require(raw["enum"], list, self._where, "enum")))
        nodes += self._combined()
        if "not" in raw:
            self._used.add("not")
            nodes.append(self._loader.add(NotNode(self._child("not")), 1))
        if "const" in raw and self._dialect is not Dialect.DRAFT_4:
            self._used.add("const")
            nodes.append(ConstNode(raw["const"]))
        if "type" in raw:
            nodes.append(self._typed())
        return nodes + self._untyped()

    def _combined(self) -> list[Node]:
        nodes: list[Node] = []
        for criterion in Criterion:
            name = criterion.value
            if name in self._raw:
                self._used.add(name)
                members = require(self._raw[name], list, self._where, name)
                nodes.append(self._loader.add(CombinedNode(criterion, self._children(name, members)), len(members)))
        return nodes

    def _typed(self) -> Node:
        self._used.add("type")
        names = self._raw["type"]
        if isinstance(names, str):
            return self._of_type(names)
        return CombinedNode(Criterion.ANY, [self._of_type(name) for name in require_types(names, self._where)])

    def _of_type(self, name: str) -> Node:
        match name:
            case "string":
                return self._string(is_required=True)
            case "integer":
                return self._number(is_required=True, is_integer=True)
            case "number":
                return self._number(is_required=True)
            case "boolean":
                return BooleanNode()
            case "null":
                return NullNode()
            case "array":
                return self._array(is_required=True)
            case "object":
                return self._object(is_required=True)
        return fail(self._where, f"{name[:200]!r} is not a type")

    def _untyped(self) -> list[Node]:
        """Returns the nodes of keywords that belong to a type which `type` does not name."""
        unused = self._raw.keys() - self._used
        nodes: list[Node] = []
        if not unused.isdisjoint(self._arrays):
            nodes.append(self._array(is_required=False))
        if not unused.isdisjoint(self._objects):
            nodes.append(self._object(is_required=False))
        if not unused.isdisjoint(_NUMBERS):
            nodes.append(self._number(is_required=False))
        if not unused.isdisjoint(_STRINGS):
            nodes.append(self._string(is_required=False))
        if self._dialect is Dialect.DRAFT_7 and not unused.isdisjoint(_CONDITIONS):
            self._used.update(_CONDITIONS)
            parts = [self._child(name) if name in self._raw else None for name in _CONDITIONS]
            nodes.append(self._loader.add(ConditionalNode(*parts), 3))
        return nodes

    def _string(self, *, is_required: bool) -> Node:
        self._used.update(_STRINGS)
        node = StringNode(is_required=is_required)
        node.length_min = self._size("minLength")
        node.length_max = self._size("maxLength")
        if "pattern" in self._raw:
            node.pattern = require(self._raw["pattern"], str, self._where, "pattern")
            self._loader.check_pattern(node.pattern)
        if "format" in self._raw:
            name = require(self._raw["format"], str, self._where, "format")
            node.format = name if name in _FORMATS[self._dialect] else None
        return node

    def _number(self, *, is_required: bool, is_integer: bool = False) -> Node:
        self._used.update(_NUMBERS)
        node = NumberNode(is_required=is_required, is_integer=is_integer)
        node.minimum = self._limit("minimum")
        node.maximum = self._limit("maximum")
        node.multiple_of = self._limit("multipleOf")
        if node.multiple_of is not None and to_double(node.multiple_of) == 0:
            fail(self._where, "'multipleOf' must not be 0")
        if self._dialect is Dialect.DRAFT_4:
            for name, slot in (("exclusiveMinimum", "is_min_exclusive"), ("exclusiveMaximum", "is_max_exclusive")):
                if name in self._raw:
                    setattr(node, slot, require(self._raw[name], bool, self._where, name))
        else:
            node.exclusive_min = self._limit("exclusiveMinimum")
            node.exclusive_max = self._limit("exclusiveMaximum")
        return node

    def _array(self, *, is_required: bool) -> Node:
        self._used.update(self._arrays)
        raw, node = self._raw, ArrayNode(is_required=is_required)
        node.items_min = self._size("minItems")
        node.items_max = self._size("maxItems")
        if "uniqueItems" in raw:
            node.is_unique = require(raw["uniqueItems"], bool, self._where, "uniqueItems")
        if isinstance(raw.get("additionalItems"), bool):
            node.allows_additional = raw["additionalItems"]
        elif "additionalItems" in raw:
            node.additional = self._schema("additionalItems")
        items = raw.get("items")
        if isinstance(items, list):
            node.prefix = self._children("items", items)
        elif "items" in raw:
            node.items = self._schema("items", allows_boolean=self._dialect is not Dialect.DRAFT_4)
            node.allows_additional = True
        if "contains" in raw and self._dialect is not Dialect.DRAFT_4:
            node.contains = self._child("contains")
        return self._loader.add(node, len(node.prefix))

    def _object(self, *, is_required: bool) -> Node:
        self._used.update(self._objects)
        raw, node = self._raw, ObjectNode(is_required=is_required)
        node.properties_min = self._size("minProperties")
        node.properties_max = self._size("maxProperties")
        if "properties" in raw:
            node.properties = self._map("properties", skipped=self._dialect.id_keyword)
        if isinstance(raw.get("additionalProperties"), bool):
            node.allows_additional = raw["additionalProperties"]
        elif "additionalProperties" in raw:
            node.additional = self._schema("additionalProperties")
        if "required" in raw:
            node.requirements = dict.fromkeys(require_strings(raw["required"], self._where, "required"))
        if "patternProperties" in raw:
            node.patterns = self._map("patternProperties")
            for pattern in node.patterns:
                self._loader.check_pattern(pattern)
        if "dependencies" in raw:
            self._depend(node)
        if "propertyNames" in raw and self._dialect is not Dialect.DRAFT_4:
            node.names = self._child("propertyNames")
        return self._loader.add(node, len(node.properties) + len(node.patterns) + len(node.schema_dependencies))

    def _depend(self, node: ObjectNode) -> None:
        where = (self._where, "dependencies")
        dependencies = require(self._raw["dependencies"], dict, self._where, "dependencies")
        scope = self._scope.enter(dependencies)
        for name, item in dependencies.items():
            if isinstance(item, list):
                if item:
                    node.dependencies[name] = frozenset(require_strings(item, where, name))
            elif isinstance(item, dict) or (isinstance(item, bool) and self._dialect is not Dialect.DRAFT_4):
                node.schema_dependencies[name] = Pending(item, scope, (where, name))
            else:
                fail(where, f"{name[:200]!r} must be a schema or an array of names, but is {name_type(item)}")

    def _describe(self, node: Node) -> None:
        """Sets what all kinds of schemas may have, and keeps the keywords that are not known."""
        raw, used = self._raw, self._used
        for name, slot in ((self._dialect.id_keyword, "id"), ("title", "title"), ("description", "description")):
            if name in raw:
                setattr(node, slot, require(raw[name], str, self._where, name))
                used.add(name)
        if self._dialect is Dialect.DRAFT_7 and ("readOnly" in raw or "writeOnly" in raw):
            used.update(("readOnly", "writeOnly"))
            node.flags = (self._flag("readOnly"), self._flag("writeOnly"))
        # Like everit, ignores a default value next to `$ref`.
        used.add("default")
        node.default = MISSING if isinstance(node, ReferenceNode) else raw.get("default", MISSING)
        if len(raw) > len(used) or not raw.keys() <= used:
            node.extra = {name: item for name, item in raw.items() if name not in used} or NOTHING
            if isinstance(node, ArrayNode):
                node.contains_min = _number_or_none(raw.get("minContains"))
                node.contains_max = _number_or_none(raw.get("maxContains"))

    def _flag(self, name: str) -> bool | None:
        return require(self._raw[name], bool, self._where, name) if name in self._raw else None

    def _size(self, name: str) -> int | None:
        if name not in self._raw:
            return None
        value = require(self._raw[name], int, self._where, name)
        if not -(2**31) <= value < 2**31:
            fail(self._where, f"{name!r} must be an integer of 32 bits")
        return value

    def _limit(self, name: str) -> int | Decimal | None:
        return require_number(self._raw[name], self._where, name) if name in self._raw else None

    def _schema(self, name: str, *, allows_boolean: bool = False) -> Node:
        """Returns a child that must be an object, or also a boolean."""
        value = self._raw[name]
        if not isinstance(value, dict) and not (allows_boolean and isinstance(value, bool)):
            fail(self._where, f"{name!r} must be a schema, but is {name_type(value)}")
        return self._child(name)

    def _child(self, name: str) -> Node:
        return Pending(self._raw[name], self._scope, (self._where, name))

    def _children(self, name: str, items: list[Json]) -> list[Node]:
        where = (self._where, name)
        return [Pending(item, self._scope, (where, str(index))) for index, item in enumerate(items)]

    def _map(self, name: str, skipped: str = "") -> dict[str, Node]:
        where = (self._where, name)
        items = require(self._raw[name], dict, self._where, name)
        scope = self._scope.enter(items)
        return {
            key: Pending(item, scope, (where, key))
            for key, item in items.items()
            if key != skipped or isinstance(item, dict)
        }


def _number_or_none(value: Json) -> int | Decimal | None:
    return value if value.__class__ is int or value.__class__ is Decimal else None

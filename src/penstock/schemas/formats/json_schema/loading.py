"""What the loaders of all drafts share: makes nodes of JSON values from a worklist, without recursion.

A loader makes one node at a time. Its children are Pending until the worklist comes to them, so that deep and
recursive schemas need neither stack nor repeated work: a JSON object becomes one node, however many references lead
to it.
"""

from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeVar

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema.documents import Json
from penstock.schemas.formats.json_schema.regexes import check_pattern
from penstock.schemas.formats.json_schema.schema_nodes import (
    ArrayNode,
    CombinedNode,
    ConditionalNode,
    Criterion,
    FalseNode,
    Node,
    NotNode,
    ObjectNode,
    ReferenceNode,
    TrueNode,
)

NODES_MAX: Final = 200_000
"""Nodes of a schema and all that it refers to: five times those of a usual schema of 1 MB. About a second."""
TYPES_MAX: Final = 16
"""Types in a list of types. There are seven; each repetition would load all keywords of its type again."""

_T = TypeVar("_T")
_TYPE_NAMES: Final = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    Decimal: "number",
}


class Pending(Node):
    """Stands for a node that is not made yet.

    `scope` is the loader's: what relative references are resolved against. `where` is the path of the JSON value: the
    path of what contains it, and its key; the empty tuple is the path of the document.
    """

    __slots__ = ("raw", "scope", "where")

    def __init__(self, raw: Json, scope: Any, where: Any) -> None:  # no super(): it is never seen as a schema
        self.raw = raw
        self.scope = scope
        self.where = where


class Loader(ABC):
    """Makes the nodes of one schema."""

    def __init__(self) -> None:
        self._unfilled: list[Node] = []
        self._nodes_left = NODES_MAX
        self._patterns: set[str] = set()

    def _load(self, root: Pending) -> Node:
        """Returns the node of a schema with all nodes that it consists of, or refers to."""
        node = self._make(root)
        self._work()
        return node

    def _work(self) -> None:
        while self._unfilled:
            self._fill(self._unfilled.pop())

    def _make(self, pending: Pending) -> Node:
        """Returns the node of a JSON value; its children are still pending. Raises InvalidSchema."""
        self._spend(1)
        raw = pending.raw
        if raw.__class__ is dict:
            return self._make_object(pending)
        if raw is True:
            return TrueNode()
        if raw is False:
            return FalseNode()
        return fail(pending.where, f"expected a schema (an object or a boolean), found {name_type(raw)}")

    def check_pattern(self, pattern: str) -> None:
        """Raises InvalidSchema if a regular expression is not valid. Checks each one once."""
        if pattern not in self._patterns:
            check_pattern(pattern)
            self._patterns.add(pattern)

    @abstractmethod
    def _make_object(self, pending: Pending) -> Node:
        """Returns the node of a JSON object."""

    def _later(self, node: Node) -> None:
        """Has the children of a node made."""
        self._unfilled.append(node)

    def _spend(self, count: int) -> None:
        self._nodes_left -= count
        if self._nodes_left < 0:
            raise InvalidSchema(f"The schema consists of more than {NODES_MAX} schemas.")

    def _fill(self, node: Node) -> None:
        if isinstance(node, ObjectNode):
            self._fill_map(node.properties)
            self._fill_map(node.patterns)
            self._fill_map(node.schema_dependencies)
            for slot in ("additional", "names", "unevaluated"):
                self._fill_slot(node, slot)
        elif isinstance(node, ArrayNode):
            node.prefix = self._fill_list(node.prefix)
            for slot in ("items", "additional", "contains", "unevaluated"):
                self._fill_slot(node, slot)
        elif isinstance(node, CombinedNode):
            node.members = self._fill_list(node.members, flattens=not node.is_generated)
        elif isinstance(node, NotNode):
            self._fill_slot(node, "member")
        elif isinstance(node, ConditionalNode):
            for slot in ("condition", "then", "otherwise"):
                self._fill_slot(node, slot)
        elif isinstance(node, ReferenceNode):
            self._fill_slot(node, "target")

    def _fill_slot(self, node: Node, slot: str) -> None:
        child = getattr(node, slot)
        if isinstance(child, Pending):
            setattr(node, slot, self._make(child))

    def _fill_map(self, children: dict[str, Node]) -> None:
        for name, child in children.items():
            if isinstance(child, Pending):
                children[name] = self._make(child)

    def _fill_list(self, children: list[Node], *, flattens: bool = False) -> list[Node]:
        made: list[Node] = []
        for child in children:
            node = self._make(child) if isinstance(child, Pending) else child
            if flattens and isinstance(node, CombinedNode) and is_generated(node, Criterion.ALL):
                # json-sKema's translation unwraps it, though this changes the meaning of `oneOf` and `anyOf`.
                made += node.members
            else:
                made.append(node)
        return made


def bridge_definitions(root: Json) -> Json:
    """Returns a document in which what `definitions` holds is also found in `$defs`."""
    if not isinstance(root, dict):
        return root
    source, target = root.get("definitions"), root.get("$defs", {})
    if not isinstance(source, dict) or not source or not isinstance(target, dict):
        return root
    return root | {"$defs": target | {name: item for name, item in source.items() if name not in target}}


def is_generated(node: Node, criterion: Criterion) -> bool:
    return isinstance(node, CombinedNode) and node.is_generated and node.criterion is criterion


def require(value: Json, expected: type[_T], where: Any, name: str) -> _T:
    """Returns the value of keyword `name` if it is of the expected type. Raises InvalidSchema."""
    if isinstance(value, expected) and (expected is not int or value.__class__ is int):
        return value
    return fail(where, f"{name!r} must be of type {_TYPE_NAMES[expected]}, but is {name_type(value)}")


def require_number(value: Json, where: Any, name: str) -> int | Decimal:
    if value.__class__ is int or value.__class__ is Decimal:
        return value
    return fail(where, f"{name!r} must be a number, but is {name_type(value)}")


def require_strings(value: Json, where: Any, name: str) -> list[str]:
    names = require(value, list, where, name)
    for item in names:
        if item.__class__ is not str:
            fail(where, f"{name!r} must be an array of strings, but holds {name_type(item)}")
    return names


def require_types(value: Json, where: Any) -> list[str]:
    """Returns the names of a list of types."""
    if not isinstance(value, list):
        fail(where, f"'type' must be a string or an array of strings, but is {name_type(value)}")
    names = require_strings(value, where, "type")
    if len(names) > TYPES_MAX:
        fail(where, f"'type' has {len(names)} types; at most {TYPES_MAX} are allowed")
    return names


def name_type(value: Json) -> str:
    """Returns what a value is, for messages: `an object`, `null`."""
    if value is None:
        return "null"
    name = _TYPE_NAMES.get(value.__class__, "value")
    return f"an {name}" if name[0] in "aio" else f"a {name}"


def fail(where: Any, problem: str) -> NoReturn:
    raise InvalidSchema(f"{print_path(where)}: {problem}.")


def print_path(where: Any) -> str:
    """Returns the path of a JSON value as a JSON pointer, at most 1,000 characters of it."""
    parts: list[str] = []
    while where:
        where, name = where
        parts.append(name[:200].replace("~", "~0").replace("/", "~1"))
    return f"#/{'/'.join(reversed(parts))}"[:1000]

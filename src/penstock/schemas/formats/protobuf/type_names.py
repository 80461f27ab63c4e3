"""Resolves the names of types and extensions as Confluent's registry does: from the innermost scope outwards.

Names are kept in a tree of their parts, so that a lookup does not join long names, and costs at most the depth of
the scope. Unlike in C++, the whole name must exist in a scope, and all files that the registry knows are searched,
imported or not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.schemas.formats.protobuf.elements import EnumType, Extend, Field, File, Message, Type
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.java_text import java_text, split_name
from penstock.schemas.formats.protobuf.limits import NESTING_MAX
from penstock.schemas.formats.protobuf.map_types import MapType
from penstock.schemas.formats.protobuf.merging import merge_by_name


@dataclass(slots=True)
class TypeInfo:
    """A message or enum by its full name."""

    type: Type
    file: str | None
    """Name of the file that defines it, None for the schema itself."""
    package: str
    node: "Node"
    is_map: bool = False
    """Whether it is the message of the entries of a map."""

    @property
    def local_name(self) -> str:
        """The name without that of the package."""
        return self.node.full_name()[len(self.package) + 1 if self.package else 0 :]

    @property
    def is_enum(self) -> bool:
        return isinstance(self.type, EnumType)

    def map_type(self) -> MapType:
        """The type of the map that it has the entries of. Raises InvalidSchema without key and value."""
        assert isinstance(self.type, Message)
        by_name = {field.name: field for field in reversed(self.type.fields)}
        if "key" not in by_name or "value" not in by_name:
            raise invalid(f"message {self.type.name} is a map entry, but has no fields 'key' and 'value'")
        return MapType.of(by_name["key"].type, by_name["value"].type)


class Node:
    """A name, which may be one of a type, of an extension, and of a scope."""

    __slots__ = ("children", "extension", "name", "parent", "type")

    def __init__(self, name: str, parent: "Node | None") -> None:
        self.name = name
        self.parent = parent
        self.children: dict[str, Node] | None = None
        self.type: TypeInfo | None = None
        self.extension: Field | None = None

    def find(self, parts: Iterable[str]) -> "Node | None":
        node = self
        for part in parts:
            child = None if node.children is None else node.children.get(part)
            if child is None:
                return None
            node = child
        return node

    def add(self, parts: Iterable[str]) -> "Node":
        node = self
        for part in parts:
            if node.children is None:
                node.children = {}
            child = node.children.get(part)
            if child is None:
                child = node.children[part] = Node(part, node)
            node = child
        return node

    def full_name(self) -> str:
        parts = []
        node = self
        while node.parent is not None:
            parts.append(node.name)
            node = node.parent
        return ".".join(reversed(parts))


class TypeNames:
    """The names of all types and extensions of a schema and of the files that it may refer to."""

    def __init__(self, root: File, files: Mapping[str, File]) -> None:
        self.tree = Node("", None)
        for name, file in files.items():
            self._add_file(name, file)
        self._add_file(None, root)
        self.package = root.package or ""

    def _add_file(self, name: str | None, file: File) -> None:
        package = file.package or ""
        node = self.tree
        if package:
            if package.count(".") >= NESTING_MAX:
                raise invalid(f"the name of a package has more than {NESTING_MAX} parts")
            node = node.add(package.split("."))
        self._add_extensions(node, file.extends)
        self._add_types(node, name, package, file.types)

    def _add_types(self, scope: Node, file: str | None, package: str, types: Iterable[Type]) -> None:
        for type_ in types:
            node = scope.add(type_.name.split("."))
            if isinstance(type_, EnumType):
                node.type = TypeInfo(type_, file, package, node)
                continue
            self._add_extensions(node, type_.extends)
            node.type = TypeInfo(type_, file, package, node, is_map_entry(type_))
            self._add_types(node, file, package, type_.nested)

    def _add_extensions(self, scope: Node, extends: Iterable[Extend]) -> None:
        for extend in extends:
            for field in extend.fields:
                scope.add(field.name.split(".")).extension = field

    def scope(self, package: str | None = None) -> "Scope":
        """Returns the scope of the top level of a file with this package, of the schema itself without."""
        return Scope(self.tree, self.package if package is None else package)


class Scope:
    """A place in a file, from which names are resolved."""

    def __init__(self, tree: Node, package: str) -> None:
        self._tree = tree
        self._nodes: list[Node | None] = []
        self._is_named = False
        if package:
            for part in split_name(package):
                self.enter(part)

    def enter(self, name: str) -> None:
        """Enters the scope of a message."""
        last = self._nodes[-1] if self._nodes else self._tree
        parts = name.split(".")
        if not self._is_named and parts[0] == "":
            parts = parts[1:]
        self._is_named = True
        self._nodes.append(None if last is None else last.find(parts))

    def leave(self) -> None:
        self._nodes.pop()
        self._is_named = bool(self._nodes)

    def type(self, name: str) -> tuple[Node, TypeInfo] | None:
        """Returns a type and its node by name; None if there is none."""
        if name.startswith("."):
            node = self._absolute(name)
            return (node, node.type) if node is not None and node.type is not None else None
        parts = name.split(".")
        for scope in reversed(self._nodes):
            node = scope.find(parts) if scope is not None else None
            if node is not None and node.type is not None:
                return node, node.type
        node = self._tree.find(parts)
        return (node, node.type) if node is not None and node.type is not None else None

    def extension(self, name: str) -> tuple[Node, Field] | None:
        """Returns an extension and its node by name; None if there is none."""
        if name.startswith("."):
            node = self._absolute(name)
            return (node, node.extension) if node is not None and node.extension is not None else None
        parts = name.split(".")
        for scope in reversed(self._nodes):
            node = scope.find(parts) if scope is not None else None
            if node is not None and node.extension is not None:
                return node, node.extension
        node = self._tree.find(parts)
        return (node, node.extension) if node is not None and node.extension is not None else None

    def extension_by_full_name(self, name: str) -> Field | None:
        node = self._tree.find(name.removeprefix(".").split("."))
        return None if node is None else node.extension

    def _absolute(self, name: str) -> Node | None:
        return self._tree.find(name.removeprefix(".").removeprefix(".").split("."))


def is_map_entry(message: Message) -> bool:
    """Whether a message has the entries of a map: `option map_entry = true`."""
    if not message.options:
        return False
    option = merge_by_name(message.options).get("map_entry")
    return option is not None and java_text(option.value).lower() == "true"

"""Checks file descriptors as Protobuf's Java library does when it links them: names, numbers, types and defaults.

Confluent's registry, Java consumers and Spark build their classes with that library, so its verdict counts. It allows
some of what `protoc` refuses, such as values of two enums with the same name.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final

from penstock.schemas.formats.protobuf.default_values import is_default_value
from penstock.schemas.formats.protobuf.descriptor_builder import TYPE_ENUM, TYPE_MESSAGE, TYPES
from penstock.schemas.formats.protobuf.errors import invalid

FULL_NAMES_LENGTH_MAX: Final = 64 * 1024 * 1024
"""Maximum characters of all full names together: a long package name counts for each name in it."""
_IDENTIFIER: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*+")
_REPEATED: Final = 3
_TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}
_NOT_PACKABLE: Final = frozenset((TYPES["string"], TYPES["bytes"], TYPE_MESSAGE))


class Role(Enum):
    """What a name stands for."""

    MESSAGE = "message"
    ENUM = "enum"
    SERVICE = "service"
    PACKAGE = "package"
    OTHER = "field, value or method"


class Symbol:
    """What a name stands for, with the descriptor if it is a type."""

    def __init__(self, role: Role, descriptor: Any = None) -> None:
        self.role = role
        self.is_type = role is Role.MESSAGE or role is Role.ENUM
        self._descriptor = descriptor

    @cached_property
    def value_names(self) -> frozenset[str]:
        """Names of the values of an enum."""
        return frozenset(value.name for value in self._descriptor.value)

    def is_extension_number(self, number: int) -> bool:
        starts, ends = self._extension_ranges
        at = bisect_right(starts, number) - 1
        return at >= 0 and number < ends[at]

    @cached_property
    def _extension_ranges(self) -> tuple[list[int], list[int]]:
        """As in Java, where ranges never overlap: starts and ends are sorted on their own."""
        ranges = self._descriptor.extension_range
        return sorted(each.start for each in ranges), sorted(each.end for each in ranges)


_PACKAGE: Final = Symbol(Role.PACKAGE)
_SHARED: Final = {each.value: Symbol(each) for each in (Role.SERVICE, Role.OTHER)}


@dataclass(slots=True)
class _FileNames:
    visible: set[str]
    """Names of the file, of its imports, and of what these import publicly."""
    exported: set[str]
    """The file and what it imports publicly, directly or through others."""
    packages: frozenset[str]
    symbols: dict[str, Symbol] = field(default_factory=dict)


class Linker:
    """The files linked so far."""

    def __init__(self) -> None:
        self._files: dict[str, _FileNames] = {}
        self._by_name: dict[str, dict[str, Symbol]] = {}
        self._types: dict[str, str] = {}
        self._length_left = FULL_NAMES_LENGTH_MAX

    def add(self, file: Any) -> None:
        """Links a file; those that it imports come first. Raises InvalidSchema."""
        visible = {file.name}.union(*(self._files[path].exported for path in file.dependency))
        names = _FileNames(
            visible=visible,
            exported={file.name}.union(*(self._files[file.dependency[at]].exported for at in file.public_dependency)),
            packages=frozenset(_package_and_parents(file.package)),
        )
        self._files[file.name] = names
        for path in {each for other in visible for each in self._files[other].packages}:
            self._count(path)
            names.symbols[path] = _PACKAGE
        prefix = f"{file.package}." if file.package else ""
        fields: list[tuple[str, Any]] = []
        for message in file.message_type:
            self._add_message(names, prefix, message, fields)
        for enum in file.enum_type:
            self._add_enum(names, prefix, enum)
        methods: list[tuple[str, Any]] = []
        for service in file.service:
            full_name = self._define(names, prefix, service, Role.SERVICE)
            methods += self._define_all(names, f"{full_name}.", service.method)
        fields += self._define_all(names, prefix, file.extension)
        self._publish(file.name, names)
        for full_name, each in fields:
            self._link_field(file.name, full_name, each)
        for full_name, each in methods:
            for type_ in (each.input_type, each.output_type):
                if self._type(file.name, type_, full_name).role is not Role.MESSAGE:
                    raise invalid(f"{full_name}: type {type_!r} is no message")

    def _publish(self, file: str, names: _FileNames) -> None:
        for full_name, symbol in names.symbols.items():
            self._by_name.setdefault(full_name, {})[file] = symbol
            if symbol.is_type and self._types.setdefault(full_name, file) != file:
                raise invalid(f"{full_name} is defined in two files: {self._types[full_name]} and {file}")

    def _add_message(self, names: _FileNames, prefix: str, message: Any, fields: list[tuple[str, Any]]) -> None:
        full_name = self._define(names, prefix, message, Role.MESSAGE)
        inner = f"{full_name}."
        for nested in message.nested_type:
            self._add_message(names, inner, nested, fields)
        for enum in message.enum_type:
            self._add_enum(names, inner, enum)
        fields += self._define_all(names, inner, message.field)
        numbers: dict[int, str] = {}
        for each in message.field:
            other = numbers.setdefault(each.number, each.name)
            if other != each.name:
                raise invalid(f"{full_name}: fields {other} and {each.name} have the same number {each.number}")
        fields += self._define_all(names, inner, message.extension)

    def _add_enum(self, names: _FileNames, prefix: str, enum: Any) -> None:
        full_name = self._define(names, prefix, enum, Role.ENUM)
        if not enum.value:
            raise invalid(f"enum {full_name} has no values; it must have at least one")
        self._define_all(names, f"{full_name}.", enum.value)

    def _define_all(self, names: _FileNames, prefix: str, descriptors: Iterable[Any]) -> list[tuple[str, Any]]:
        """Defines fields, values or methods; returns them with their full names."""
        return [(self._define(names, prefix, each, Role.OTHER), each) for each in descriptors]

    def _define(self, names: _FileNames, prefix: str, descriptor: Any, role: Role) -> str:
        full_name = f"{prefix}{descriptor.name}"
        self._count(full_name)
        if _IDENTIFIER.fullmatch(descriptor.name) is None:
            raise invalid(f"{descriptor.name!r} is no name: use letters, digits and _, and start with no digit")
        if full_name in names.symbols:
            raise invalid(f"{full_name} is defined twice, or is the name of a package")
        names.symbols[full_name] = _SHARED[role.value] if role.value in _SHARED else Symbol(role, descriptor)
        return full_name

    def _count(self, full_name: str) -> None:
        self._length_left -= len(full_name)
        if self._length_left < 0:
            raise invalid(f"all full names together have over {FULL_NAMES_LENGTH_MAX} characters")

    def _find(self, file: str, full_name: str) -> Iterator[Symbol]:
        """Yields what a name means in a file: first in the file itself, then in what it can see."""
        found = self._by_name.get(full_name)
        if not found:
            return
        if file in found:
            yield found[file]
        visible = self._files[file].visible
        for other in found if len(found) < len(visible) else visible:
            if other in found and other in visible and other != file:
                yield found[other]

    def _type(self, file: str, name: str, relative_to: str) -> Symbol:
        """Returns the type with a name, which is searched from the innermost scope outwards, as in C++."""
        if name.startswith("."):
            return self._require_type(file, name[1:], name, relative_to)
        first, dot, _ = name.partition(".")
        scope = relative_to
        while True:
            scope, has_scope, _ = scope.rpartition(".")
            if not has_scope:
                return self._require_type(file, name, name, relative_to)
            found = [each for each in self._find(file, f"{scope}.{first}") if each.role is not Role.OTHER]
            if found and dot:
                return self._require_type(file, f"{scope}.{name}", name, relative_to)
            for symbol in found:
                if symbol.is_type:
                    return symbol

    def _require_type(self, file: str, full_name: str, name: str, relative_to: str) -> Symbol:
        for symbol in self._find(file, full_name):
            if symbol.is_type:
                return symbol
        raise invalid(f"{relative_to}: type {name!r} is not defined in the file or in what it imports")

    def _link_field(self, file: str, full_name: str, each: Any) -> None:
        if each.number <= 0:
            raise invalid(f"{full_name}: the number of a field must be positive, not {each.number}")
        if each.HasField("extendee"):
            self._check_extendee(file, full_name, each)
        type_ = each.type if each.HasField("type") else 0
        enum: Symbol | None = None
        if each.HasField("type_name"):
            symbol = self._type(file, each.type_name, full_name)
            found = TYPE_ENUM if symbol.role is Role.ENUM else TYPE_MESSAGE
            if type_ and type_ != found:
                raise invalid(f"{full_name}: {each.type_name!r} means a message in one scope, and an enum in another")
            type_ = found
            enum = symbol
        is_repeated = each.label == _REPEATED
        if each.options.packed and (not is_repeated or type_ in _NOT_PACKABLE):
            raise invalid(f"{full_name}: only repeated numbers, bools and enums can be packed")
        if each.HasField("default_value"):
            self._check_default(full_name, each, type_, enum)

    def _check_extendee(self, file: str, full_name: str, each: Any) -> None:
        symbol = self._type(file, each.extendee, full_name)
        if symbol.role is not Role.MESSAGE:
            raise invalid(f"{full_name}: {each.extendee!r} is no message, and cannot be extended")
        if not symbol.is_extension_number(each.number):
            raise invalid(f"{full_name}: {each.extendee!r} does not have extension number {each.number}")

    def _check_default(self, full_name: str, each: Any, type_: int, enum: Symbol | None) -> None:
        text = each.default_value
        if each.label == _REPEATED:
            raise invalid(f"{full_name}: a repeated field cannot have a default value")
        if type_ == TYPE_MESSAGE:
            raise invalid(f"{full_name}: a message cannot have a default value")
        if type_ == TYPE_ENUM:
            if enum is not None and text not in enum.value_names:
                raise invalid(f"{full_name}: {text!r} is no value of enum {each.type_name}")
        elif not is_default_value(text, _TYPE_NAMES[type_]):
            raise invalid(f"{full_name}: {text!r} is no default value of type {_TYPE_NAMES[type_]}")


def link(files: Iterable[Any]) -> None:
    """Checks files, of which each comes after those that it imports. Raises InvalidSchema."""
    linker = Linker()
    for file in files:
        linker.add(file)


def order_files(root: str, imports: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a file and all that it imports, each after those it imports. Raises InvalidSchema for a cycle."""
    order: list[str] = []
    state = {root: False}
    path = [(root, iter(imports[root]))]
    while path:
        name, rest = path[-1]
        for each in rest:
            if each not in state:
                state[each] = False
                path.append((each, iter(imports[each])))
                break
            if not state[each]:
                raise invalid(f"file {each} imports itself, directly or through others")
        else:
            state[name] = True
            order.append(name)
            path.pop()
    return order


def _package_and_parents(package: str) -> Iterator[str]:
    while package:
        yield package
        package = package.rpartition(".")[0]

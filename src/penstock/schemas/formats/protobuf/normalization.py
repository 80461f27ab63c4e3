"""Normalizes the elements of a .proto file as Confluent's registry does: names in full, and what has no order sorted.

The order of messages is kept: serialized data refers to them by index.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from penstock.schemas.formats.protobuf.elements import (
    PROTO3,
    REPEATED,
    EnumType,
    Extend,
    Extensions,
    Field,
    File,
    Group,
    Kind,
    Message,
    OneOf,
    Option,
    Primitive,
    Range,
    Reserved,
    Rpc,
    Service,
    Type,
    Value,
)
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.java_text import java_order, java_text
from penstock.schemas.formats.protobuf.limits import TEXT_LENGTH_MAX
from penstock.schemas.formats.protobuf.map_types import SCALARS, MapType
from penstock.schemas.formats.protobuf.merging import OptionMerger, to_map
from penstock.schemas.formats.protobuf.numbers import normalize_number
from penstock.schemas.formats.protobuf.printer import default_kind, field_options
from penstock.schemas.formats.protobuf.reader import is_word
from penstock.schemas.formats.protobuf.type_names import Node, Scope, TypeNames

_INT_MAX = 2**31 - 1
_Tagged = TypeVar("_Tagged", Field, Group)


class NormalFile(NamedTuple):
    file: File
    can_be_parsed: bool
    """Whether the text of the file can certainly be parsed again. It may have parts that are printed without quotes,
    such as the default value of a number."""


def normalize_file(file: File, names: TypeNames) -> NormalFile:
    """Returns the file in its normal form. Raises InvalidSchema if the name of a type cannot be resolved."""
    normalizer = _Normalizer(names.scope())
    normal = normalizer.file(file)
    return NormalFile(normal, normalizer.can_be_parsed)


class _Normalizer:
    def __init__(self, scope: Scope) -> None:
        self.can_be_parsed = True
        self._scope = scope
        self._length_left = TEXT_LENGTH_MAX

    def file(self, file: File) -> File:
        self._check_quoted(file.imports)
        self._check_quoted(file.public_imports)
        return File(
            syntax=file.syntax if file.syntax == PROTO3 else None,
            package=file.package,
            imports=sorted(set(file.imports), key=java_order),
            public_imports=sorted(set(file.public_imports), key=java_order),
            options=self._options(file.options),
            types=self._types(file.types),
            extends=self._extends(file.extends),
            services=[self._service(each) for each in file.services],
        )

    def _types(self, types: Iterable[Type]) -> list[Type]:
        normal: list[Type] = []
        for each in types:
            if isinstance(each, Message):
                found = self._scope.type(each.name)
                if found is not None and found[1].is_map:
                    continue  # its fields become map fields
            self._scope.enter(each.name)
            normal.append(self._message(each) if isinstance(each, Message) else self._enum(each))
            self._scope.leave()
        return normal

    def _message(self, message: Message) -> Message:
        one_ofs = [self._one_of(each) for each in message.one_ofs if each.fields]
        if message.one_ofs and not one_ofs:
            one_ofs = [OneOf("")]  # prints no block, but the blank line before
        return Message(
            name=message.name,
            reserved=self._reserved(message.reserved),
            options=self._options(message.options),
            fields=self._fields(message.fields),
            one_ofs=sorted(one_ofs, key=lambda each: [field.tag for field in each.fields[:1]]),
            groups=[each._replace(fields=self._fields(each.fields)) for each in _by_tag(message.groups)],
            extensions=self._extensions(message.extensions),
            extends=self._extends(message.extends),
            nested=self._types(message.nested),
        )

    def _enum(self, enum: EnumType) -> EnumType:
        constants = sorted(enum.constants, key=lambda each: (each.tag, java_order(each.name)))
        return EnumType(
            name=enum.name,
            reserved=self._reserved(enum.reserved),
            options=self._options(enum.options),
            constants=[each._replace(options=self._options(each.options)) for each in constants],
        )

    def _one_of(self, one_of: OneOf) -> OneOf:
        return OneOf(
            name=one_of.name,
            options=self._options(one_of.options),
            fields=self._fields(one_of.fields),
            groups=[each._replace(fields=self._fields(each.fields)) for each in _by_tag(one_of.groups)],
        )

    def _reserved(self, reserved: Iterable[Reserved]) -> list[Reserved]:
        values = [value for each in reserved for value in each.values]
        self._check_quoted(each for each in values if isinstance(each, str))
        values.sort(key=lambda each: (_first(each), java_order(_java_value(each))))
        return [Reserved([each]) for each in values]

    def _check_quoted(self, texts: Iterable[str]) -> None:
        """Checks texts that are printed in quotes, but not escaped."""
        for text in texts:
            self.can_be_parsed &= '"' not in text and "\\" not in text

    def _extensions(self, extensions: Iterable[Extensions]) -> list[Extensions]:
        flat = []
        for each in extensions:
            options = self._options(each.options)
            flat += [Extensions([value], options) for value in each.values]
        return sorted(flat, key=lambda each: _first(each.values[0]))

    def _extends(self, extends: Sequence[Extend]) -> list[Extend]:
        fields: dict[str, list[Field]] = {}
        for each in extends:
            if each.fields:
                fields.setdefault(self._resolved(each.name), []).extend(each.fields)
        if extends and not fields:
            return [Extend("")]  # prints no block, but the blank line before
        return [Extend(name, self._fields(of_name)) for name, of_name in fields.items()]

    def _service(self, service: Service) -> Service:
        return service._replace(
            options=self._options(service.options), rpcs=[self._rpc(each) for each in service.rpcs]
        )

    def _rpc(self, rpc: Rpc) -> Rpc:
        return rpc._replace(
            request=self._resolved(rpc.request),
            response=self._resolved(rpc.response),
            options=self._options(rpc.options),
        )

    def _fields(self, fields: Sequence[Field]) -> list[Field]:
        return [self._field(each) for each in _by_tag(fields)]

    def _field(self, field: Field) -> Field:
        label, type_ = field.label, field.type
        if type_ not in SCALARS:
            type_, is_map = self._type(type_)
            label = None if is_map else label
        if not field.options and field.default is None and field.json_name is None:
            return Field(label, type_, field.name, field.tag)
        if field.default is not None and default_kind(type_) is not Kind.STRING:
            self.can_be_parsed &= is_word(field.default)
        return Field(label, type_, field.name, field.tag, options=self._options(field_options(field, type_)))

    def _type(self, type_: str) -> tuple[str, bool]:
        """Returns a type with full names, and whether it is a map."""
        map_type = MapType.parse(type_)
        if map_type is None:
            found = self._scope.type(type_)
            if found is None:
                raise invalid(f"type {type_!r} is not defined, neither here nor in a reference")
            node, info = found
            if not info.is_map:
                return self._name(node), False
            map_type = info.map_type()
        value = self._scope.type(map_type.value)
        return (f"map<{map_type.key}, {self._name(value[0])}>" if value is not None else map_type.text), True

    def _resolved(self, name: str) -> str:
        found = self._scope.type(name)
        if found is None:
            raise invalid(f"type {name!r} is not defined, neither here nor in a reference")
        return self._name(found[0])

    def _name(self, node: Node) -> str:
        name = f".{node.full_name()}"
        self._length_left -= len(name)
        if self._length_left < 0:
            raise invalid(f"the full names of all types have more than {TEXT_LENGTH_MAX} characters")
        return name

    def _options(self, options: Sequence[Option]) -> list[Option]:
        """Returns options with full names, sorted; several that set fields of the same option are merged."""
        if not options:
            return []
        by_name: dict[str, list[Option]] = {}
        for option in sorted((self._named(each) for each in options), key=lambda each: java_order(each.name)):
            by_name.setdefault(option.name, []).append(option)
        normal: list[Option] = []
        for name, same in by_name.items():
            extension = self._scope.extension_by_full_name(name)
            if extension is not None and extension.label != REPEATED:
                merger = OptionMerger(same[0], extension, self._field_of, self._is_message)
                for each in same[1:]:
                    merger.add(to_map(each))
                same = [merger.result()]
            normal.extend(self._normal_option(each) for each in same)
        return normal

    def _named(self, option: Option) -> Option:
        if not option.is_custom:
            return option
        found = self._scope.extension(option.name)
        return option if found is None else to_map(option._replace(name=self._name(found[0])[1:]))

    def _message_of(self, field: Field) -> Message | None:
        found = self._scope.type(field.type)
        return found[1].type if found is not None and isinstance(found[1].type, Message) else None

    def _is_message(self, field: Field) -> bool:
        return self._message_of(field) is not None

    def _field_of(self, container: Field, name: str) -> Field | None:
        message = self._message_of(container)
        if message is None:
            return None
        for fields in (message.fields, *(each.fields for each in message.one_ofs)):
            for field in fields:
                if field.name == name:
                    return field
        return None

    def _normal_option(self, option: Option) -> Option:
        value: Value
        match option.kind:
            case Kind.NUMBER:
                text = java_text(option.value)
                value = normalize_number(text) or text
            case Kind.OPTION:
                assert isinstance(option.value, Option)
                value = self._normal_option(option.value)
            case Kind.MAP:
                assert isinstance(option.value, dict)
                value = self._normal_map(option.value)
            case Kind.LIST:
                assert isinstance(option.value, list)
                value = [self._normal_value(each) for each in option.value]
            case _:
                return option
        return option._replace(value=value)

    def _normal_map(self, values: Mapping[str, Value]) -> dict[str, Value]:
        normal: dict[str, Value] = {}
        for name, value in values.items():
            if value == []:
                continue
            is_extension = name.startswith("[") and name.endswith("]")
            self.can_be_parsed &= is_word(name[1:-1] if is_extension else name)
            if is_extension:
                found = self._scope.extension(name[1:-1])
                if found is not None:
                    name = f"[{self._name(found[0])[1:]}]"
            normal.setdefault(name, value)
        return {name: self._normal_value(normal[name]) for name in sorted(normal, key=java_order)}

    def _normal_value(self, value: Value) -> Value:
        match value:
            case str():
                return value
            case Primitive():
                if value.kind is not Kind.NUMBER:
                    return value
                return value._replace(value=normalize_number(value.value) or value.value)
            case Option():
                self.can_be_parsed = False
                return self._normal_option(value)
            case dict():
                return self._normal_map(value)
            case _:
                assert isinstance(value, list)
                return (
                    self._normal_value(value[0]) if len(value) == 1 else [self._normal_value(each) for each in value]
                )


def _first(value: str | int | Range) -> int:
    if isinstance(value, str):
        return _INT_MAX
    return value.first if isinstance(value, Range) else value


def _java_value(value: str | int | Range) -> str:
    return f"{value.first}..{value.last}" if isinstance(value, Range) else str(value)


def _by_tag(elements: Sequence[_Tagged]) -> Sequence[_Tagged]:
    return sorted(elements, key=lambda each: each.tag)

"""Builds the file descriptor of a .proto file, as Confluent's registry does for its `serialized` format.

Groups are left out, as there: their fields are unknown to readers.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.schemas.formats.protobuf import option_tables
from penstock.schemas.formats.protobuf.descriptor_messages import DescriptorMessages
from penstock.schemas.formats.protobuf.descriptor_options import (
    write_constant_options,
    write_extension_options,
    write_field_options,
    write_options,
)
from penstock.schemas.formats.protobuf.elements import (
    OPTIONAL,
    PROTO3,
    REPEATED,
    REQUIRED,
    EnumType,
    Extend,
    Field,
    File,
    Message,
    Range,
    Service,
    Type,
)
from penstock.schemas.formats.protobuf.map_types import MapType
from penstock.schemas.formats.protobuf.type_names import Scope

TYPES: Final = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
TYPE_MESSAGE: Final = 11
TYPE_ENUM: Final = 14
_LABELS: Final = {OPTIONAL: 1, REQUIRED: 2, REPEATED: 3}
_INT_MAX: Final = 2**31 - 1


def build_descriptor(
    name: str, file: File, scope: Scope, imports: Sequence[str], messages: DescriptorMessages
) -> Any:
    """Returns the descriptor of a file. `scope`: of its package. `imports`: the paths of those files that exist.

    Raises InvalidSchema for options with values that they cannot have.
    """
    return _Builder(scope, file.syntax == PROTO3, messages).file(name, file, imports)


class _Builder:
    def __init__(self, scope: Scope, is_proto3: bool, messages: DescriptorMessages) -> None:
        self._scope = scope
        self._is_proto3 = is_proto3
        self._messages = messages
        self._metas = messages.metas

    def file(self, name: str, file: File, imports: Sequence[str]) -> Any:
        built = self._messages.File(name=name)
        if file.syntax is not None:
            built.syntax = file.syntax
        if file.package is not None:
            built.package = file.package
        self._types(built.message_type, built.enum_type, file.types)
        for service in file.services:
            _write_service(built.service.add(), service)
        self._extends(built.extension, file.extends)
        known = set(imports)
        paths = list(dict.fromkeys(path for path in (*file.imports, *file.public_imports) if path in known))
        built.dependency.extend(paths)
        positions = {path: at for at, path in enumerate(paths)}
        built.public_dependency.extend(positions[path] for path in file.public_imports if path in known)
        write_options(built, file.options, option_tables.FILE, self._metas["FileOptions"])
        return built

    def _types(self, messages: Any, enums: Any, types: Iterable[Type]) -> None:
        for each in types:
            if isinstance(each, EnumType):
                self._enum(enums.add(), each)
            else:
                self._scope.enter(each.name)
                self._message(messages.add(), each)
                self._scope.leave()

    def _message(self, built: Any, message: Message) -> None:
        built.name = message.name
        self._types(built.nested_type, built.enum_type, message.nested)
        in_one_of = set()
        for index, one_of in enumerate(message.one_ofs):
            added = built.oneof_decl.add(name=one_of.name)
            added.options.SetInParent()
            write_options(added, one_of.options, option_tables.ONE_OF)
            for field in one_of.fields:
                self._field(built.field.add(oneof_index=index), field, field.type, OPTIONAL)
                in_one_of.add(field.name)
        for field in message.fields:
            if field.name not in in_one_of:
                self._message_field(built, field)
        for reserved in message.reserved:
            for value in reserved.values:
                if isinstance(value, str):
                    built.reserved_name.append(value)
                else:
                    first, last = _bounds(value)
                    built.reserved_range.add(start=first, end=_int32(last + 1))
        for extensions in message.extensions:
            for number in extensions.values:
                first, last = _bounds(number)
                added = built.extension_range.add(start=first, end=_int32(last + 1))
                added.options.SetInParent()
                write_extension_options(added, extensions)
        self._extends(built.extension, message.extends)
        write_options(built, message.options, option_tables.MESSAGE, self._metas["MessageOptions"])

    def _message_field(self, built: Any, field: Field) -> None:
        label, type_ = field.label, field.type
        is_proto3_optional = label == OPTIONAL and self._is_proto3
        map_type = MapType.parse(type_)
        if map_type is not None:
            label, type_ = REPEATED, map_entry_name(field.name)
            entry = built.nested_type.add(name=type_)
            entry.options.map_entry = True
            for number, (name, of_type) in enumerate((("key", map_type.key), ("value", map_type.value)), 1):
                self._type(entry.field.add(name=name, number=number), of_type)
        added = built.field.add()
        self._field(added, field, type_, label)
        if is_proto3_optional:
            added.proto3_optional = True
            added.oneof_index = len(built.oneof_decl)
            built.oneof_decl.add(name=f"_{field.name}").options.SetInParent()

    def _field(self, built: Any, field: Field, type_: str, label: str | None) -> None:
        built.name = field.name
        built.number = field.tag
        self._type(built, type_)
        if label is not None:
            built.label = _LABELS[label]
        if field.default is not None:
            built.default_value = field.default
        if field.json_name is not None:
            built.json_name = field.json_name
        write_field_options(built, field.options, self._metas["FieldOptions"])

    def _type(self, built: Any, type_: str) -> None:
        number = TYPES.get(type_)
        if number is not None:
            built.type = number
            return
        found = self._scope.type(type_)
        if found is not None:
            built.type = TYPE_ENUM if found[1].is_enum else TYPE_MESSAGE
        built.type_name = type_

    def _extends(self, built: Any, extends: Iterable[Extend]) -> None:
        for extend in extends:
            for field in extend.fields:
                self._field(built.add(extendee=extend.name), field, field.type, field.label)

    def _enum(self, built: Any, enum: EnumType) -> None:
        built.name = enum.name
        for constant in enum.constants:
            added = built.value.add(name=constant.name, number=constant.tag)
            write_constant_options(added, constant.options, self._metas["EnumValueOptions"])
        for reserved in enum.reserved:
            for value in reserved.values:
                if isinstance(value, str):
                    built.reserved_name.append(value)
                else:
                    first, last = _bounds(value)
                    built.reserved_range.add(start=first, end=last)
        write_options(built, enum.options, option_tables.ENUM, self._metas["EnumOptions"])


def map_entry_name(field: str) -> str:
    """Returns the name of the message of the entries of a map field, as Confluent's registry makes it."""
    if "_" in field:
        field = "".join(part[:1].upper() + part[1:].lower() for part in field.split("_"))
    return f"{field}Entry"


def _write_service(built: Any, service: Service) -> None:
    built.name = service.name
    for rpc in service.rpcs:
        added = built.method.add(
            name=rpc.name,
            input_type=rpc.request,
            output_type=rpc.response,
            client_streaming=rpc.is_request_stream,
            server_streaming=rpc.is_response_stream,
        )
        write_options(added, rpc.options, option_tables.METHOD)
    write_options(built, service.options, option_tables.SERVICE)


def _bounds(value: int | Range | str) -> tuple[int, int]:
    assert not isinstance(value, str)
    return (value.first, value.last) if isinstance(value, Range) else (value, value)


def _int32(number: int) -> int:
    """Returns a number as Java's integers overflow."""
    return number if number <= _INT_MAX else number - 2 * _INT_MAX - 2

"""Prints the elements of a .proto file as Confluent's registry stores them, byte for byte."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from penstock.schemas.formats.protobuf.elements import (
    TAG_MAX,
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
    Range,
    Reserved,
    Rpc,
    Service,
    Type,
)
from penstock.schemas.formats.protobuf.map_types import SCALARS, MapType
from penstock.schemas.formats.protobuf.option_printer import Writer, write_option, write_options

CONFLUENT_PREFIX = "confluent."


class Style(Enum):
    """What is printed."""

    CANONICAL = "canonical"
    NORMAL = "normal"
    """A file whose elements are normalized already: without blocks that are empty."""
    NO_EXTENSIONS = "no extensions"
    """Without extensions and options that are extensions, except Confluent's."""


def print_file(file: File, style: Style) -> str:
    """Returns the text. Raises InvalidSchema for a map that cannot exist, and above TEXT_LENGTH_MAX."""
    return _Printer(style).file(file)


def default_kind(type_: str) -> Kind:
    """Returns how the default value of a field of this type is printed."""
    name = type_.rpartition(".")[2]
    if name == "bool":
        return Kind.BOOLEAN
    if name == "string":
        return Kind.STRING
    return Kind.NUMBER if name in SCALARS else Kind.ENUM


def field_options(field: Field, type_: str) -> list[Option]:
    """Returns the options of a field with those that only look like options: its default value and JSON name."""
    options = list(field.options)
    if field.default is not None:
        options.append(Option("default", default_kind(type_), field.default))
    if field.json_name is not None:
        options.append(Option("json_name", Kind.STRING, field.json_name))
    return options


class _Printer:
    def __init__(self, style: Style) -> None:
        self._has_extensions = style is not Style.NO_EXTENSIONS
        self._is_normal = style is Style.NORMAL
        self._writer = Writer()
        self._write = self._writer.write

    def file(self, file: File) -> str:
        write = self._write
        if file.syntax is not None:
            write(f'syntax = "{file.syntax}";\n')
        if file.package is not None:
            write(f"package {file.package};\n")
        if file.imports or file.public_imports:
            write("\n")
            for path in file.imports:
                write(f'import "{path}";\n')
            for path in file.public_imports:
                write(f'import public "{path}";\n')
        options = self._shown(file.options)
        if options:
            write("\n")
            self._options("", options)
        if file.types:
            write("\n")
            self._types("", file.types)
        if self._has_extensions and file.extends:
            write("\n")
            self._extends("", file.extends)
        if file.services:
            write("\n")
            for service in file.services:
                self._service(service)
        return self._writer.text()

    def _block(self, prefix: str, header: str, sections: Sequence[Callable[[str], object]]) -> None:
        """Prints sections in braces, with a blank line between two."""
        write = self._write
        if not sections:
            write(f"{prefix}{header} {{}}\n")
            return
        write(f"{prefix}{header} {{\n")
        for number, section in enumerate(sections):
            if number:
                write(f"{prefix}\n")
            section(prefix + "  ")
        write(f"{prefix}}}\n")

    def _shown(self, options: Sequence[Option]) -> Sequence[Option]:
        if self._has_extensions:
            return options
        return [each for each in options if not each.is_custom or each.name.startswith(CONFLUENT_PREFIX)]

    def _options(self, prefix: str, options: Iterable[Option]) -> None:
        for option in options:
            self._write(f"{prefix}option ")
            write_option(self._writer, option, prefix)
            self._write(";\n")

    def _end(self, prefix: str, text: str, options: Sequence[Option]) -> None:
        """Prints a statement with options at its end."""
        if not options:
            self._write(f"{prefix}{text};\n")
            return
        self._write(f"{prefix}{text} ")
        write_options(self._writer, options, prefix)
        self._write(";\n")

    def _types(self, prefix: str, types: Sequence[Type]) -> None:
        """Prints messages, then enums."""
        for each in types:
            if isinstance(each, Message):
                self._message(prefix, each)
        for each in types:
            if isinstance(each, EnumType):
                self._enum(prefix, each)

    def _message(self, prefix: str, message: Message) -> None:
        sections: list[Callable[[str], object]] = []
        if message.reserved:
            sections.append(lambda inner: self._reserved(inner, message.reserved))
        options = self._shown(message.options)
        if options:
            sections.append(lambda inner: self._options(inner, options))
        if message.fields:
            sections.append(lambda inner: self._fields(inner, message.fields))
        if message.one_ofs:
            sections.append(lambda inner: self._one_ofs(inner, message.one_ofs))
        if message.groups:
            sections.append(lambda inner: self._groups(inner, message.groups))
        if self._has_extensions and message.extensions:
            sections.append(lambda inner: self._extensions(inner, message.extensions))
        if self._has_extensions and message.extends:
            sections.append(lambda inner: self._extends(inner, message.extends))
        if message.nested:
            sections.append(lambda inner: self._types(inner, message.nested))
        self._block(prefix, f"message {message.name}", sections)

    def _enum(self, prefix: str, enum: EnumType) -> None:
        if not enum.reserved and not enum.options and not enum.constants:
            self._write(f"{prefix}enum {enum.name} {{}}\n")
            return
        self._write(f"{prefix}enum {enum.name} {{\n")
        inner = prefix + "  "
        self._reserved(inner, enum.reserved)
        self._options(inner, self._shown(enum.options))
        for name, tag, options in enum.constants:
            self._end(inner, f"{name} = {tag}", self._shown(options) if options else ())
        self._write(f"{prefix}}}\n")

    def _fields(self, prefix: str, fields: Iterable[Field]) -> None:
        for field in fields:
            label, type_, name, tag, default, json_name, options = field
            MapType.parse(type_)
            if options or default is not None or json_name is not None:
                options = self._shown(field_options(field, type_))
            self._end(
                prefix, f"{type_} {name} = {tag}" if label is None else f"{label} {type_} {name} = {tag}", options
            )

    def _one_ofs(self, prefix: str, one_ofs: Iterable[OneOf]) -> None:
        for one_of in one_ofs:
            if one_of.fields or not self._is_normal:
                self._one_of(prefix, one_of)

    def _one_of(self, prefix: str, one_of: OneOf) -> None:
        sections: list[Callable[[str], object]] = []
        options = self._shown(one_of.options)
        if options:
            sections.append(lambda inner: self._options(inner, options))
        if one_of.fields:
            sections.append(lambda inner: self._fields(inner, one_of.fields))
        if one_of.groups:
            sections.append(lambda inner: self._groups(inner, one_of.groups))
        self._block(prefix, f"oneof {one_of.name}", sections)

    def _groups(self, prefix: str, groups: Iterable[Group]) -> None:
        for group in groups:
            fields = group.fields
            label = f"{group.label} " if group.label is not None else ""
            self._named_fields(prefix, f"{label}group {group.name} = {group.tag}", fields)

    def _extends(self, prefix: str, extends: Iterable[Extend]) -> None:
        for extend in extends:
            if extend.fields or not self._is_normal:
                self._named_fields(prefix, f"extend {extend.name}", extend.fields)

    def _named_fields(self, prefix: str, header: str, fields: Sequence[Field]) -> None:
        self._block(prefix, header, [lambda inner: self._fields(inner, fields)] if fields else [])

    def _reserved(self, prefix: str, reserved: Iterable[Reserved]) -> None:
        for each in reserved:
            values = ", ".join(
                '"' + value.replace("\n", f"\n{prefix}") + '"' if isinstance(value, str) else self._range(value)
                for value in each.values
            )
            self._write(f"{prefix}reserved {values};\n")

    def _extensions(self, prefix: str, extensions: Iterable[Extensions]) -> None:
        for each in extensions:
            text = ", ".join(self._range(value) for value in each.values)
            self._end(prefix, f"extensions {text}", self._shown(each.options))

    def _range(self, value: int | Range) -> str:
        if not isinstance(value, Range):
            return str(value)
        if value.first == value.last and self._is_normal:
            return str(value.first)
        return f"{value.first} to {value.last if value.last < TAG_MAX else 'max'}"

    def _service(self, service: Service) -> None:
        sections: list[Callable[[str], object]] = []
        options = self._shown(service.options)
        if options:
            sections.append(lambda inner: self._options(inner, options))
        if service.rpcs:
            sections.append(lambda inner: self._rpcs(inner, service.rpcs))
        self._block("", f"service {service.name}", sections)

    def _rpcs(self, prefix: str, rpcs: Iterable[Rpc]) -> None:
        for rpc in rpcs:
            self._rpc(prefix, rpc)

    def _rpc(self, prefix: str, rpc: Rpc) -> None:
        request = f"stream {rpc.request}" if rpc.is_request_stream else rpc.request
        response = f"stream {rpc.response}" if rpc.is_response_stream else rpc.response
        header = f"rpc {rpc.name} ({request}) returns ({response})"
        options = self._shown(rpc.options)
        if not options:
            self._write(f"{prefix}{header};\n")
            return
        self._write(f"{prefix}{header} {{\n")
        self._options(prefix + "  ", options)
        self._write(f"{prefix}}};\n")

"""Parses a .proto text into its elements, with the grammar of Square's Wire, the parser of Confluent's registry.

This grammar allows some of what `protoc` refuses, such as two fields of the same number, and refuses editions.
Comments are dropped: the registry does not store them.
"""

from enum import Enum
from typing import Final, TypeAlias

from penstock.schemas.formats.protobuf.elements import (
    OPTIONAL,
    PROTO2,
    PROTO3,
    REPEATED,
    REQUIRED,
    TAG_MAX,
    Constant,
    EnumType,
    Extend,
    Extensions,
    Field,
    File,
    Group,
    Message,
    OneOf,
    Option,
    Range,
    Reserved,
    Rpc,
    Service,
    Type,
)
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.import_paths import normalize_import
from penstock.schemas.formats.protobuf.java_text import java_text
from penstock.schemas.formats.protobuf.limits import NESTING_MAX, TEXT_LENGTH_MAX
from penstock.schemas.formats.protobuf.option_reader import read_option, read_options
from penstock.schemas.formats.protobuf.reader import Reader, parse_int

_LABELS: Final = {OPTIONAL: OPTIONAL, REQUIRED: REQUIRED, REPEATED: REPEATED}
_SYNTAXES: Final = {PROTO2: PROTO2, PROTO3: PROTO3}
_QUOTES: Final = "\"'"
_PARTS: Final[dict[type, type]] = {EnumType: Message}
"""Enums and messages in a message keep their order among each other."""

Declaration: TypeAlias = (
    Type | Service | Extend | Extensions | OneOf | Field | Group | Reserved | Option | Constant | Rpc | None
)


class Context(Enum):
    """The block that a declaration is in."""

    FILE = "file"
    MESSAGE = "message"
    ENUM = "enum"
    RPC = "rpc"
    EXTEND = "extend"
    SERVICE = "service"


def parse_file(text: str) -> File:
    """Parses a .proto text. Raises InvalidSchema with the line and column of the first error."""
    if len(text) > TEXT_LENGTH_MAX:
        raise invalid(f"a Protobuf schema has at most {TEXT_LENGTH_MAX} characters, this one has {len(text)}")
    return _Parser(Reader(text)).file()


class _Parser:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._depth = 0
        self._declarations = 0
        self._syntax: str | None = None
        self._package: str | None = None
        self._imports: list[str] = []
        self._public_imports: list[str] = []

    def file(self) -> File:
        reader = self._reader
        types: dict[str, Type] = {}
        services: dict[str, Service] = {}
        extends: list[Extend] = []
        options: list[Option] = []
        while True:
            reader.skip_blanks()
            if reader.is_at_end():
                break
            found = self._declaration(Context.FILE)
            if isinstance(found, Message | EnumType):
                if found.name in types:
                    reader.fail(f"{found.name} is defined twice")
                types[found.name] = found
            elif isinstance(found, Service):
                if found.name in services:
                    reader.fail(f"service {found.name} is defined twice")
                services[found.name] = found
            elif isinstance(found, Extend):
                extends.append(found)
            elif isinstance(found, Option):
                options.append(found)
        return File(
            syntax=self._syntax,
            package=self._package,
            imports=[normalize_import(each) for each in self._imports],
            public_imports=[normalize_import(each) for each in self._public_imports],
            types=list(types.values()),
            services=list(services.values()),
            extends=extends,
            options=options,
        )

    def _declaration(self, context: Context) -> Declaration:
        """Reads a declaration; None for one without an element, such as `package` or a semicolon."""
        reader = self._reader
        self._declarations += 1
        if reader.take(";"):
            return None
        start = reader.at
        label = reader.word(may_start_with_digit=context is not Context.ENUM)
        if label == "option":
            option = read_option(reader)
            reader.require(";")
            return option
        if label == "reserved":
            return self._reserved()
        if context is Context.ENUM:
            return self._constant(label)
        if context is Context.MESSAGE or context is Context.FILE:
            if label == "message":
                return self._message()
            if label == "enum":
                return self._enum()
            if label == "extend":
                return self._extend()
        if context is Context.MESSAGE:
            if label == "oneof":
                return self._one_of()
            if label == "extensions":
                return self._extensions()
        if context is Context.MESSAGE or context is Context.EXTEND:
            return self._labelled_field(label, start)
        if context is Context.SERVICE and label == "rpc":
            return self._rpc()
        if context is Context.FILE:
            return self._file_declaration(label, start)
        reader.fail(f"expected a declaration of a {context.value}, but found {label!r}", start)

    def _file_declaration(self, label: str, start: int) -> Service | None:
        reader = self._reader
        if label == "service":
            return self._service()
        if label == "package":
            self._package = reader.name()
        elif label == "import":
            self._import()
        elif label == "syntax":
            if self._declarations > 1:
                reader.fail("'syntax' must be the first declaration of the schema, and there is only one", start)
            reader.require("=")
            found = reader.string()
            if found not in _SYNTAXES:
                reader.fail(f"expected syntax 'proto2' or 'proto3', but found {found!r}", start)
            self._syntax = _SYNTAXES[found]
        elif label == "edition":
            reader.fail("editions are not supported in the text of a schema; use syntax 'proto2' or 'proto3'", start)
        else:
            reader.fail(f"expected a declaration, but found {label!r}", start)
        reader.require(";")
        return None

    def _import(self) -> None:
        reader = self._reader
        if reader.peek() in _QUOTES:
            self._imports.append(reader.string())
            return
        word = reader.word()
        if word not in ("public", "weak"):
            reader.fail(f"expected a string in quotes after 'import', but found {word!r}")
        path = reader.string()
        if word == "public":  # weak imports are not stored
            self._public_imports.append(path)

    def _message(self) -> Message:
        reader = self._reader
        name = reader.name()
        reader.require("{")
        self._enter()
        parts: dict[type, list[Declaration]] = {}
        while not reader.take("}"):
            found = self._declaration(Context.MESSAGE)
            if found is not None:
                parts.setdefault(_PARTS.get(type(found), type(found)), []).append(found)
        self._depth -= 1
        return Message(
            name=name,
            nested=parts.get(Message, ()),  # type: ignore[arg-type]
            fields=parts.get(Field, ()),  # type: ignore[arg-type]
            one_ofs=parts.get(OneOf, ()),  # type: ignore[arg-type]
            groups=parts.get(Group, ()),  # type: ignore[arg-type]
            reserved=parts.get(Reserved, ()),  # type: ignore[arg-type]
            extensions=parts.get(Extensions, ()),  # type: ignore[arg-type]
            extends=parts.get(Extend, ()),  # type: ignore[arg-type]
            options=parts.get(Option, ()),  # type: ignore[arg-type]
        )

    def _extend(self) -> Extend:
        name = self._reader.name()
        return Extend(name, [each for each in self._block(Context.EXTEND) if isinstance(each, Field)])

    def _service(self) -> Service:
        name = self._reader.name()
        found = self._block(Context.SERVICE)
        return Service(
            name,
            rpcs=[each for each in found if isinstance(each, Rpc)],
            options=[each for each in found if isinstance(each, Option)],
        )

    def _enum(self) -> EnumType:
        name = self._reader.name()
        found = self._block(Context.ENUM)
        return EnumType(
            name,
            constants=[each for each in found if isinstance(each, Constant)],
            reserved=[each for each in found if isinstance(each, Reserved)],
            options=[each for each in found if isinstance(each, Option)],
        )

    def _block(self, context: Context) -> list[Declaration]:
        reader = self._reader
        reader.require("{")
        found = []
        while not reader.take("}"):
            found.append(self._declaration(context))
        return found

    def _constant(self, name: str) -> Constant:
        reader = self._reader
        reader.require("=")
        tag = reader.integer()
        options = read_options(reader)
        reader.require(";")
        reader.skip_trailing_comment()
        return Constant(name, tag, options)

    def _labelled_field(self, word: str, start: int) -> Field | Group:
        reader = self._reader
        label = _LABELS.get(word)
        if label is not None:
            if label == REQUIRED and self._syntax == PROTO3:
                reader.fail("proto3 has no required fields", start)
            type_ = self._type(reader.word())
        else:
            if self._syntax != PROTO3 and not (word == "map" and reader.peek() == "<"):
                reader.fail(f"expected 'optional', 'required' or 'repeated', but found {word!r}", start)
            type_ = self._type(word)
        if label is not None and type_.startswith("map<"):
            reader.fail("a map field cannot have a label", start)
        return self._group(label) if type_ == "group" else self._field(label, type_)

    def _field(self, label: str | None, type_: str) -> Field:
        reader = self._reader
        name = reader.name(may_start_with_digit=False)
        reader.require("=")
        tag = reader.integer()
        options = read_options(reader)
        default = json_name = None
        if options:
            # As in Wire: these two are no options, and the last one counts.
            for each in options:
                if each.name == "default":
                    default = java_text(each.value)
                elif each.name == "json_name":
                    json_name = java_text(each.value)
            options = tuple(each for each in options if each.name not in ("default", "json_name"))
        reader.require(";")
        reader.skip_trailing_comment()
        return Field(label, type_, name, tag, default, json_name, options)

    def _one_of(self) -> OneOf:
        reader = self._reader
        name = reader.name()
        fields: list[Field] = []
        groups: list[Group] = []
        options: list[Option] = []
        reader.require("{")
        while not reader.take("}"):
            word = self._type(reader.word())
            if word == "group":
                groups.append(self._group(None))
            elif word == "option":
                options.append(read_option(reader))
                reader.require(";")
            else:
                fields.append(self._field(None, word))
        return OneOf(name, fields, groups, options)

    def _group(self, label: str | None) -> Group:
        reader = self._reader
        name = reader.word()
        reader.require("=")
        tag = reader.integer()
        reader.require("{")
        self._enter()
        fields = []
        while not reader.take("}"):
            start = reader.at
            found = self._labelled_field(reader.word(), start)
            if isinstance(found, Group):
                reader.fail("a group cannot contain a group", start)
            fields.append(found)
        self._depth -= 1
        return Group(label, name, tag, fields)

    def _reserved(self) -> Reserved:
        reader = self._reader
        values: list[str | int | Range] = []
        while True:
            values.append(reader.string() if reader.peek() in _QUOTES else self._range(",;"))
            if self._ends_list():
                reader.skip_trailing_comment()
                return Reserved(values)

    def _extensions(self) -> Extensions:
        reader = self._reader
        values: list[int | Range] = []
        while True:
            values.append(self._range(",;["))
            if reader.peek() == "[":
                options = read_options(reader)
                reader.require(";")
                return Extensions(values, options)
            if self._ends_list():
                return Extensions(values)

    def _range(self, ends: str) -> int | Range:
        reader = self._reader
        first = reader.integer()
        if reader.peek() in ends:
            return first
        if reader.word() != "to":
            reader.fail("expected 'to', ',' or ';' after a number")
        word = reader.word()
        last = TAG_MAX if word == "max" else parse_int(word, may_be_hex=False)
        if last is None:
            reader.fail(f"expected a number or 'max', but found {word!r}")
        return Range(first, last)

    def _ends_list(self) -> bool:
        reader = self._reader
        found = reader.character()
        if found not in ",;":
            reader.fail(f"expected ',' or ';', but found {found!r}", reader.at - 1)
        return found == ";"

    def _rpc(self) -> Rpc:
        reader = self._reader
        name = reader.name()
        request, is_request_stream = self._rpc_type()
        if reader.word() != "returns":
            reader.fail("expected 'returns'")
        response, is_response_stream = self._rpc_type()
        options: list[Option] = []
        if reader.peek() == "{":
            options = [each for each in self._block(Context.RPC) if isinstance(each, Option)]
        else:
            reader.require(";")
        return Rpc(name, request, response, is_request_stream, is_response_stream, options)

    def _rpc_type(self) -> tuple[str, bool]:
        reader = self._reader
        reader.require("(")
        word = reader.word()
        is_stream = word == "stream"
        type_ = self._type(reader.word() if is_stream else word)
        reader.require(")")
        return type_, is_stream

    def _type(self, word: str) -> str:
        """Reads the rest of a type, of which `word` has been read."""
        reader = self._reader
        if word == "map":
            self._enter()
            reader.require("<")
            key = self._type(reader.word())
            reader.require(",")
            value = self._type(reader.word())
            reader.require(">")
            self._depth -= 1
            return f"map<{key}, {value}>"
        while reader.peek() == ".":
            reader.at += 1
            word += f".{reader.word()}"
        return word

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > NESTING_MAX:
            self._reader.fail(f"messages or types are nested more than {NESTING_MAX} levels deep")

"""Reads serialized file descriptors, which Confluent's Python serializer registers instead of a text.

They become the same elements as in Confluent's registry: extensions of options are dropped, except Confluent's own.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock.schemas.formats.protobuf import option_tables
from penstock.schemas.formats.protobuf.descriptor_messages import DescriptorMessages, descriptor_messages
from penstock.schemas.formats.protobuf.elements import (
    OPTIONAL,
    PROTO2,
    PROTO3,
    REPEATED,
    REQUIRED,
    Constant,
    EnumType,
    Extend,
    Extensions,
    Field,
    File,
    Kind,
    Message,
    OneOf,
    Option,
    Primitive,
    Range,
    Reserved,
    Rpc,
    Service,
    Value,
)
from penstock.schemas.formats.protobuf.errors import invalid

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*+={0,2}")
_LABELS: Final = {1: OPTIONAL, 2: REQUIRED, 3: REPEATED}
_VALUE_FIRST: Final = ("precision", "scale")
"""Parameters whose value Confluent's registry prints before the key."""

Table = Sequence[tuple[str, Kind]]


def decode_base64(text: str) -> bytes | None:
    """Returns the bytes, None for a text that is not base64. Padding may be left out, as in Java."""
    if not text or _BASE64.fullmatch(text) is None:
        return None
    if text.endswith("="):
        if len(text) % 4:
            return None
    else:
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def read_descriptor(serialized: bytes) -> File:
    """Returns the elements of a serialized FileDescriptorProto. Raises InvalidSchema."""
    from google.protobuf.message import DecodeError

    messages = descriptor_messages()
    try:
        return _Reader(messages).file(messages.File.FromString(serialized))
    except DecodeError as error:
        raise invalid(f"the bytes of the schema are no Protobuf file descriptor: {error}") from None


class _Reader:
    def __init__(self, messages: DescriptorMessages) -> None:
        self._metas = messages.metas
        self._types = messages.field_types
        self._is_proto3 = False

    def file(self, file: Any) -> File:
        self._is_proto3 = file.syntax == PROTO3
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        paths = [_text(each) for each in file.dependency]
        return File(
            syntax=_text(file.syntax) if file.syntax in (PROTO2, PROTO3) else None,
            package=_text(file.package) or None,
            imports=[path for at, path in enumerate(paths) if at not in public and at not in weak],
            public_imports=[path for at, path in enumerate(paths) if at in public],
            types=[*map(self._message, file.message_type), *map(self._enum, file.enum_type)],
            services=[self._service(each) for each in file.service],
            extends=self._extends(file.extension),
            options=self._options(file, option_tables.FILE, "FileOptions"),
        )

    def _message(self, message: Any) -> Message:
        by_name: dict[str, tuple[list[Field], Any]] = {}
        for each in message.oneof_decl:
            by_name.setdefault(_text(each.name), ([], each))
        one_ofs = list(by_name.values())
        fields: list[Field] = []
        for each in message.field:
            if each.HasField("oneof_index") and not each.proto3_optional:
                if not 0 <= each.oneof_index < len(one_ofs):
                    raise invalid(f"field {each.name} is in a oneof that does not exist")
                one_ofs[each.oneof_index][0].append(self._field(each, is_in_one_of=True))
            else:
                fields.append(self._field(each))
        return Message(
            name=_text(message.name),
            nested=[*map(self._message, message.nested_type), *map(self._enum, message.enum_type)],
            fields=fields,
            one_ofs=[
                OneOf(name, in_it, options=self._options(one_of, option_tables.ONE_OF, "OneofOptions"))
                for name, (in_it, one_of) in by_name.items()
                if in_it
            ],
            reserved=[
                *(Reserved([_range(each.start, each.end - 1)]) for each in message.reserved_range),
                *(Reserved([_text(each)]) for each in message.reserved_name),
            ],
            extensions=[self._extensions(each) for each in message.extension_range],
            extends=self._extends(message.extension),
            options=self._options(message, option_tables.MESSAGE, "MessageOptions"),
        )

    def _field(self, field: Any, *, is_in_one_of: bool = False) -> Field:
        has_label = not is_in_one_of and (not self._is_proto3 or field.proto3_optional or field.label == 3)
        has_default = not self._is_proto3 and field.HasField("default_value")
        return Field(
            label=_LABELS[1 if field.proto3_optional else field.label] if has_label else None,
            type=_text(field.type_name) if field.HasField("type_name") else self._types[field.type],
            name=_text(field.name),
            tag=field.number,
            default=_text(field.default_value) if has_default else None,
            json_name=_text(field.json_name) if field.HasField("json_name") else None,
            options=self._options(field, option_tables.FIELD, "FieldOptions"),
        )

    def _enum(self, enum: Any) -> EnumType:
        return EnumType(
            name=_text(enum.name),
            constants=[
                Constant(
                    _text(each.name), each.number, self._options(each, option_tables.CONSTANT, "EnumValueOptions")
                )
                for each in enum.value
            ],
            reserved=[
                *(Reserved([_range(each.start, each.end)]) for each in enum.reserved_range),
                *(Reserved([_text(each)]) for each in enum.reserved_name),
            ],
            options=self._options(enum, option_tables.ENUM, "EnumOptions"),
        )

    def _extends(self, extensions: Iterable[Any]) -> list[Extend]:
        by_name: dict[str, list[Field]] = {}
        for each in extensions:
            by_name.setdefault(_text(each.extendee), []).append(self._field(each))
        return [Extend(name, fields) for name, fields in by_name.items()]

    def _extensions(self, extensions: Any) -> Extensions:
        options: list[Option] = []
        if extensions.HasField("options"):
            found = extensions.options
            options += [_map_option("declaration", each, option_tables.DECLARATION) for each in found.declaration]
            options += _features(found)
            if found.HasField("verification"):
                options.append(Option("verification", Kind.BOOLEAN, _enum_name(found, "verification")))
        return Extensions([_range(extensions.start, extensions.end - 1)], options)

    def _service(self, service: Any) -> Service:
        return Service(
            _text(service.name),
            rpcs=[
                Rpc(
                    _text(each.name),
                    _text(each.input_type),
                    _text(each.output_type),
                    each.client_streaming,
                    each.server_streaming,
                    self._options(each, option_tables.METHOD, "MethodOptions"),
                )
                for each in service.method
            ],
            options=self._options(service, option_tables.SERVICE, "ServiceOptions"),
        )

    def _options(self, owner: Any, table: Table, kind: str) -> Sequence[Option]:
        if not owner.HasField("options"):
            return ()
        found = owner.options
        options = [Option(name, each, _shown(found, name, each)) for name, each in table if found.HasField(name)]
        if kind == "FieldOptions":
            targets = found.DESCRIPTOR.fields_by_name["targets"].enum_type.values_by_number
            options += [Option("targets", Kind.ENUM, targets[each].name) for each in found.targets]
            options += [
                _map_option("edition_defaults", each, option_tables.EDITION_DEFAULT)
                for each in found.edition_defaults
            ]
        options += _features(found)
        if kind in ("FieldOptions", "EnumValueOptions") and found.HasField("feature_support"):
            options.append(_map_option("feature_support", found.feature_support, option_tables.FEATURE_SUPPORT))
        meta = self._metas.get(kind)
        if meta is not None and found.HasExtension(meta):
            value = _meta_value(found.Extensions[meta])
            if value:
                name = f"confluent.{option_tables.META_EXTENSIONS[kind]}"
                options.append(Option(name, Kind.MAP, value, True))
        return options


def _text(text: str | bytes) -> str:
    """Returns a text that descriptors may have as bytes that are not UTF-8. Raises InvalidSchema for these."""
    if isinstance(text, bytes):
        raise invalid("the schema has a text that is not valid UTF-8")
    return text


def _range(first: int, last: int) -> int | Range:
    return first if first == last else Range(first, last)


def _enum_name(message: Any, field: str) -> str:
    name: str = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[getattr(message, field)].name
    return name


def _shown(message: Any, field: str, kind: Kind) -> str:
    if kind is Kind.ENUM:
        return _enum_name(message, field)
    value = getattr(message, field)
    if kind is Kind.BOOLEAN:
        return "true" if value else "false"
    return str(value) if kind is Kind.NUMBER else _text(value)


def _map_option(name: str, message: Any, table: Table) -> Option:
    values: dict[str, Value] = {}
    for field, kind in table:
        if message.HasField(field):
            shown = _shown(message, field, kind)
            values[field] = shown if kind is Kind.STRING else Primitive(kind, shown)
    return Option(name, Kind.MAP, values)


def _features(options: Any) -> list[Option]:
    if not options.HasField("features"):
        return []
    return [_map_option("features", options.features, [(each, Kind.ENUM) for each in option_tables.FEATURES])]


def _meta_value(meta: Any) -> dict[str, Value]:
    """The value of one of Confluent's options; empty if nothing in it is set."""
    value: dict[str, Value] = {}
    if meta.doc:
        value["doc"] = _text(meta.doc)
    params: dict[str, Value] = {_text(each.key): _text(each.value) for each in meta.params}
    if params:
        value["params"] = [
            {"value": text, "key": key} if key in _VALUE_FIRST else {"key": key, "value": text}
            for key, text in params.items()
        ]
    if meta.tags:
        value["tags"] = [_text(each) for each in meta.tags]
    rules: list[Value] = []
    for rule in meta.rules:
        fields: dict[str, Value] = {
            each: _text(getattr(rule, each)) for each in option_tables.RULE_FIELDS if getattr(rule, each)
        }
        if fields:
            rules.append(fields)
    if rules:
        value["rules"] = rules
    return value

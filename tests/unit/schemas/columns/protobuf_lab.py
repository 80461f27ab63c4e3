"""Random Protobuf schemas and messages, and the values that columns must have for a message of Google's library."""

import math
import struct
from random import Random
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from penstock.schemas.formats.protobuf import ProtobufSchema, parse
from penstock.schemas.formats.protobuf.file_sets import file_descriptor_set
from penstock.schemas.formats.protobuf.message_indexes import message_name

HEADER = b"\0\0\0\0\x07"
"""Confluent's magic byte and a schema id."""
FIRST = b"\0"
"""The message indexes of the first message."""
UINT_BITS = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
INT_BITS = {"int32": 32, "sint32": 32, "sfixed32": 32, "int64": 64, "sint64": 64, "sfixed64": 64}
SCALARS = (*UINT_BITS, *INT_BITS, "bool", "string", "bytes", "float", "double", "Color")
KEYS = (*UINT_BITS, *INT_BITS, "bool", "string")
TIMES = ("google.protobuf.Timestamp", "google.protobuf.Duration")
DEFAULTS = {"int32": "-7", "uint64": "18446744073709551615", "string": '"x"', "Color": "BLUE", "double": "-0.5"}
INTERESTING = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
HEAD = """
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto"; import "google/protobuf/any.proto";
package lab;
"""
TAIL = "message Empty {} message Leaf { %s int32 x = 1; repeated string names = 3; } enum Color { %s }"
COLORS = "RED = 0; BLUE = 1; GREEN = -5; CRIMSON = 0; option allow_alias = true;"


def random_schema(random: Random, *, is_proto2: bool | None = None, has_maps: bool = True) -> ProtobufSchema:
    """Returns a schema whose first message is M."""
    if is_proto2 is None:
        is_proto2 = random.random() < 0.4
    syntax = "proto2" if is_proto2 else "proto3"
    text = f'syntax = "{syntax}"; {HEAD} {_message(random, "M", is_proto2, has_maps, 0)} '
    return parse(text + TAIL % ("optional" if is_proto2 else "", COLORS), {})


def _message(random: Random, name: str, is_proto2: bool, has_maps: bool, depth: int) -> str:
    parts: list[str] = []
    nested = [f"N{place}" for place in range(random.randrange(3))] if depth < 2 else []
    parts += [_message(random, each, is_proto2, has_maps, depth + 1) for each in nested]
    numbers = random.sample([*range(1, 40), 2047, 2048, 536_870_911], random.randrange(1, 9))
    others = (*TIMES, "Leaf", "Empty", "google.protobuf.Any", "google.protobuf.StringValue", *nested)
    one_of: list[str] = []
    for number in numbers:
        type_ = random.choice(SCALARS) if random.random() < 0.6 else random.choice(others)
        field = f"{type_} f{number} = {number}"
        shape = random.randrange(8)
        if shape == 0 and has_maps:
            parts.append(f"map<{random.choice(KEYS)}, {type_}> f{number} = {number};")
        elif shape == 1:
            one_of.append(f"{field};")
        elif shape in (2, 3):
            packing = random.choice(["", " [packed = true]", " [packed = false]"])
            is_packable = type_ in SCALARS and type_ not in ("string", "bytes")
            parts.append(f"repeated {field}{packing if is_packable else ''};")
        elif is_proto2:
            label = random.choice(["optional", "optional", "required"])
            default = f" [default = {DEFAULTS[type_]}]" if type_ in DEFAULTS and random.random() < 0.5 else ""
            parts.append(f"{label} {field}{default};")
        else:
            parts.append(f"{random.choice(['', 'optional '])}{field};")
    if one_of:
        parts.append(f"oneof choice {{ {' '.join(one_of)} }}")
    return f"message {name} {{ {' '.join(parts)} }}"


def message_class(schema: ProtobufSchema, name: str | None = None) -> Any:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(file_descriptor_set(schema)).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name or message_name(schema, (0,))))


def fill(random: Random, message: Any, share: float = 0.6) -> None:
    """Sets random fields, and all that are required."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and random.random() > share:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(random, message, field)
        elif field.is_repeated:
            values = getattr(message, field.name)
            for _ in range(random.choice([0, 1, 2, 40])):
                if field.message_type is not None:
                    fill(random, values.add(), share)
                else:
                    values.append(_scalar(random, field))
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(random, getattr(message, field.name), share)
        else:
            setattr(message, field.name, _scalar(random, field))


def _fill_map(random: Random, message: Any, field: Any) -> None:
    entries = getattr(message, field.name)
    key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
    for _ in range(random.randrange(3)):
        if value.message_type is not None:
            fill(random, entries[_scalar(random, key)])
        else:
            entries[_scalar(random, key)] = _scalar(random, value)


def _scalar(random: Random, field: Any) -> Any:
    types = type(field)
    match field.type:
        case types.TYPE_BOOL:
            return random.random() < 0.5
        case types.TYPE_STRING:
            return "".join(random.choices("aé\0😀", k=random.choice([0, 1, 3, 200])))
        case types.TYPE_BYTES:
            return random.randbytes(random.choice([0, 1, 9]))
        case types.TYPE_FLOAT:
            return struct.unpack("<f", random.choice([bytes(4), b"\0\0\0\x80", b"\0\0\x80\x7f", b"\1\2\3\4"]))[0]
        case types.TYPE_DOUBLE:
            return random.choice([0.0, -0.0, 1.5, math.inf, random.random()])
        case types.TYPE_ENUM:
            return random.choice([0, 1, -5] if field.enum_type.is_closed else [0, 1, -5, 9, -12])
    if field.containing_type.name in ("Timestamp", "Duration"):
        return random.choice([0, 1, -1, 999_999_999, -999_999_999, 253_402_300_799 if field.number == 1 else 1500])
    bits = 32 if "32" in _type_name(field) else 64
    number = random.choice([random.choice(INTERESTING), random.getrandbits(bits)]) % 2**bits
    return number if _type_name(field) in UINT_BITS else signed(number, bits)


def _type_name(field: Any) -> str:
    name: str = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)
    return name.removeprefix("TYPE_").lower()


def signed(number: int, bits: int) -> int:
    return number - 2**bits if number >= 2 ** (bits - 1) else number


def expected(message: Any) -> dict[str, Any] | None:
    """Returns the values of the columns of a message; None if it has no columns."""
    values = {}
    for field in message.DESCRIPTOR.fields:
        if not _has_column(field):
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, item = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            values[field.name] = {repr(_expected(key, each)): _expected(item, value[each]) for each in value}
        elif field.is_repeated:
            values[field.name] = [_expected(field, each) for each in value]
        elif field.has_presence:
            is_there = message.HasField(field.name) or field.has_default_value
            values[field.name] = _expected(field, value) if is_there else None
        else:
            is_zero = not value and not (isinstance(value, float) and math.copysign(1, value) < 0)
            values[field.name] = None if is_zero else _expected(field, value)
    return values


def _has_column(field: Any) -> bool:
    message = field.message_type
    if message is None:
        return True
    if message.GetOptions().map_entry:
        return _has_column(message.fields_by_name["value"])
    return any(map(_has_column, message.fields))


def _expected(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name in TIMES:
            nanos = abs(value.nanos) // 1000
            return value.seconds * 1_000_000 + (nanos if value.nanos >= 0 else -nanos)
        return expected(value)
    if field.enum_type is not None:
        names = {each.number: each.name for each in reversed(field.enum_type.values)}
        return names.get(value, f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_{value}")
    if isinstance(value, float):
        return comparable_float(value)
    return signed(value, UINT_BITS[_type_name(field)]) if _type_name(field) in UINT_BITS else value


def comparable_float(value: float) -> str:
    """Returns a text that tells zeros apart, but not kinds of NaN."""
    return repr(value)


def column_values(column: pa.Array) -> list[Any]:
    """Returns the values of a column as `expected` does: times in microseconds, maps as dictionaries."""
    numbers = column.cast(_without_times(column.type))
    return [_plain(each, numbers.type) for each in numbers.to_pylist()]


def _without_times(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(each.name, _without_times(each.type)) for each in type_])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, _without_times(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    return pa.int64() if pa.types.is_temporal(type_) else type_


def _plain(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {each.name: _plain(value[each.name], each.type) for each in type_}
    if pa.types.is_map(type_):
        return {repr(_plain(key, type_.key_type)): _plain(item, type_.item_type) for key, item in value}
    if pa.types.is_list(type_):
        return [_plain(each, type_.value_type) for each in value]
    return comparable_float(value) if isinstance(value, float) else value


def payloads(*messages: bytes | None) -> pa.BinaryArray:
    """Returns a column of messages of the first type of their schema, as Confluent's serializers write them."""
    return pa.array([None if each is None else HEADER + FIRST + each for each in messages], pa.binary())

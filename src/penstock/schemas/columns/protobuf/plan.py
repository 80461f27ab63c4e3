"""The plan of a Protobuf message: its fields by number, and their column types, which are those of Spark.

As with the defaults of Spark's `from_protobuf`, unsigned integers have the column type of signed ones, which have the
same bits; fields of messages without fields have no column; recursive messages have no column type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from penstock.schemas.columns.codec import NoColumnType
from penstock.schemas.columns.layout import COLUMNS_MAX, DEPTH_MAX
from penstock.schemas.columns.protobuf.descriptors import message_descriptor, name_of_message

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.schemas.formats.protobuf.schema import ProtobufSchema


class Kind(IntEnum):
    """Types of values: those of descriptors with their numbers, and messages that are no structs."""

    DOUBLE = 1
    FLOAT = 2
    INT64 = 3
    UINT64 = 4
    INT32 = 5
    FIXED64 = 6
    FIXED32 = 7
    BOOL = 8
    STRING = 9
    MESSAGE = 11
    BYTES = 12
    UINT32 = 13
    ENUM = 14
    SFIXED32 = 15
    SFIXED64 = 16
    SINT32 = 17
    SINT64 = 18
    TIMESTAMP = 19
    DURATION = 20
    EMPTY = 21
    """A message without columns."""


class Wire(IntEnum):
    """Wire types."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP_START = 3
    GROUP_END = 4
    FIXED32 = 5


class Shape(IntEnum):
    SINGULAR = 0
    REPEATED = 1
    MAP = 2


INT32_KINDS: Final = frozenset((Kind.INT32, Kind.UINT32, Kind.SINT32, Kind.FIXED32, Kind.SFIXED32))
INT64_KINDS: Final = frozenset((Kind.INT64, Kind.UINT64, Kind.SINT64, Kind.FIXED64, Kind.SFIXED64))
UNSIGNED_KINDS: Final = frozenset((Kind.UINT32, Kind.FIXED32, Kind.UINT64, Kind.FIXED64))
MESSAGE_KINDS: Final = frozenset((Kind.MESSAGE, Kind.TIMESTAMP, Kind.DURATION, Kind.EMPTY))
WIRE: Final = {
    **dict.fromkeys(Kind, Wire.BYTES),
    **dict.fromkeys((Kind.INT64, Kind.UINT64, Kind.INT32, Kind.UINT32), Wire.VARINT),
    **dict.fromkeys((Kind.SINT32, Kind.SINT64, Kind.BOOL, Kind.ENUM), Wire.VARINT),
    **dict.fromkeys((Kind.DOUBLE, Kind.FIXED64, Kind.SFIXED64), Wire.FIXED64),
    **dict.fromkeys((Kind.FLOAT, Kind.FIXED32, Kind.SFIXED32), Wire.FIXED32),
}
"""The wire type of a value that is not packed."""
_TIME_FIELDS: Final = [
    ("seconds", 1, Kind.INT64, Shape.SINGULAR, False),
    ("nanos", 2, Kind.INT32, Shape.SINGULAR, False),
]


@dataclass(frozen=True, slots=True)
class EnumPlan:
    """Values of an enum."""

    name: str
    names: Mapping[int, str]
    numbers: Mapping[str, int]
    is_closed: bool
    """Whether other numbers are unknown fields (proto2). Otherwise they get names, as in Java."""

    def name_of(self, number: int) -> str:
        return self.names.get(number) or self.name_of_unknown(number)

    def name_of_unknown(self, number: int | str) -> str:
        return f"UNKNOWN_ENUM_VALUE_{self.name}_{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    name: str
    path: str
    number: int
    kind: Kind
    shape: Shape
    is_required: bool
    has_presence: bool
    is_packed: bool
    one_of: int
    """Number of its oneof in the message, -1 without. Optional fields of proto3 have none."""
    default: int | float | str | bytes | None
    """The column's value if the field is missing: a default value that the schema gives; in a map, zero."""
    is_in_root: bool
    """Whether it is a field of the message itself, not of a nested one."""
    is_in_map: bool
    """Whether it is the key or the value of a map, which are never null."""
    enum: EnumPlan | None = None
    message: MessagePlan | None = None
    """Plan of a message, of the entries of a map, or of seconds and nanoseconds."""

    @property
    def element_type(self) -> pa.DataType:
        """The column type of one value."""
        import pyarrow as pa

        match self.kind:
            case Kind.MESSAGE:
                assert self.message is not None
                return self.message.type
            case Kind.TIMESTAMP:
                return pa.timestamp("us", "UTC")
            case Kind.DURATION:
                return pa.duration("us")
            case Kind.STRING | Kind.ENUM:
                return pa.string()
            case Kind.BYTES:
                return pa.binary()
            case Kind.BOOL:
                return pa.bool_()
            case Kind.FLOAT:
                return pa.float32()
            case Kind.DOUBLE:
                return pa.float64()
        return pa.int32() if self.kind in INT32_KINDS else pa.int64()

    @property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        match self.shape:
            case Shape.MAP:
                assert self.message is not None
                key, value = self.message.columns
                return pa.map_(key.type, pa.field("value", value.type, nullable=False))
            case Shape.REPEATED:
                return pa.list_(pa.field("element", self.element_type, nullable=False))
        return self.element_type


@dataclass(frozen=True)
class MessagePlan:
    name: str
    fields: tuple[FieldPlan, ...]
    """In the order of the schema."""

    @cached_property
    def by_number(self) -> Mapping[int, FieldPlan]:
        """In the order of the numbers."""
        return {each.number: each for each in sorted(self.fields, key=lambda each: each.number)}

    @cached_property
    def columns(self) -> tuple[FieldPlan, ...]:
        return tuple(each for each in self.fields if each.kind is not Kind.EMPTY)

    @cached_property
    def type(self) -> pa.DataType:
        import pyarrow as pa

        return pa.struct([pa.field(each.name, each.type, nullable=not each.is_required) for each in self.columns])


def message_plan(schema: ProtobufSchema, message: str | None) -> MessagePlan:
    """Returns the plan of a message, by default of the schema's first one. Raises NoColumnType."""
    descriptor = message_descriptor(schema, name_of_message(schema, message))
    plan = _Planner().message(descriptor, "", ())
    if not plan.columns:
        raise NoColumnType(f"Message {plan.name} has no fields with columns")
    return plan


class _Planner:
    def __init__(self) -> None:
        self._fields = 0

    def message(self, descriptor: Any, path: str, parents: tuple[str, ...]) -> MessagePlan:
        name = descriptor.full_name
        if name in parents:
            raise NoColumnType(f"Field {path} repeats message {name}, which contains it: it is recursive")
        if len(parents) == DEPTH_MAX:
            raise NoColumnType(f"Field {path} is nested in more than {DEPTH_MAX} messages")
        parents = (*parents, name)
        return MessagePlan(name, tuple(self._field(each, path, parents) for each in _in_order(descriptor)))

    def _field(self, descriptor: Any, path: str, parents: tuple[str, ...]) -> FieldPlan:
        self._fields += 1
        if self._fields > COLUMNS_MAX:
            raise NoColumnType(f"Message {parents[0]} has more than {COLUMNS_MAX} fields, with those of its messages")
        path = f"{path}.{descriptor.name}" if path else descriptor.name
        kind = Kind(descriptor.type)
        shape = Shape.REPEATED if descriptor.is_repeated else Shape.SINGULAR
        enum = message = None
        if kind is Kind.MESSAGE:
            message = self.message(descriptor.message_type, path, parents)
            kind = _kind_of_message(descriptor.message_type, message)
            if shape is Shape.REPEATED and descriptor.message_type.GetOptions().map_entry:
                # Like Spark, leave out a map if its values have no columns.
                shape, kind = Shape.MAP, Kind.MESSAGE if len(message.columns) == 2 else Kind.EMPTY
        elif kind is Kind.ENUM:
            enum = _enum_plan(descriptor)
        one_of = descriptor.containing_oneof
        is_in_map = descriptor.containing_type.GetOptions().map_entry
        return FieldPlan(
            name=descriptor.name,
            path=path,
            number=descriptor.number,
            kind=kind,
            shape=shape,
            is_required=descriptor.is_required,
            has_presence=descriptor.has_presence,
            is_packed=descriptor.is_packed,
            one_of=-1 if one_of is None or _is_optional(one_of) else one_of.index,
            default=_default(descriptor, kind, enum, is_in_map=is_in_map),
            is_in_root=len(parents) == 1,
            is_in_map=is_in_map,
            enum=enum,
            message=message,
        )


def _in_order(descriptor: Any) -> list[Any]:
    """Returns the fields in the order of the .proto file. Its parser keeps oneofs apart, so each oneof is put before
    the first field with a higher number."""
    if descriptor.GetOptions().map_entry:
        return sorted(descriptor.fields, key=lambda each: each.number)
    one_ofs = [each.fields for each in descriptor.oneofs if not _is_optional(each)]
    in_one_ofs = {each.number for fields in one_ofs for each in fields}
    rest = [each for each in descriptor.fields if each.number not in in_one_ofs]
    ordered: list[Any] = []
    for each in rest:
        while one_ofs and one_ofs[0][0].number < each.number:
            ordered += one_ofs.pop(0)
        ordered.append(each)
    return ordered + [each for fields in one_ofs for each in fields]


def _is_optional(one_of: Any) -> bool:
    """Whether a oneof only stands for `optional` in proto3."""
    return len(one_of.fields) == 1 and one_of.name == f"_{one_of.fields[0].name}"


def _kind_of_message(descriptor: Any, plan: MessagePlan) -> Kind:
    """Spark knows messages of time by the names of the message and of its fields, in any package."""
    if descriptor.name in ("Timestamp", "Duration"):
        parts = [(each.name, each.number, each.kind, each.shape, each.is_required) for each in plan.fields]
        if parts == _TIME_FIELDS:
            return Kind.TIMESTAMP if descriptor.name == "Timestamp" else Kind.DURATION
    return Kind.MESSAGE if plan.columns else Kind.EMPTY


def _enum_plan(descriptor: Any) -> EnumPlan:
    enum = descriptor.enum_type
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return EnumPlan(enum.name, names, {value.name: value.number for value in enum.values}, enum.is_closed)


def _default(
    descriptor: Any, kind: Kind, enum: EnumPlan | None, *, is_in_map: bool
) -> int | float | str | bytes | None:
    if kind in MESSAGE_KINDS or descriptor.is_repeated or not (is_in_map or descriptor.has_default_value):
        return None
    value: int | float | str | bytes = descriptor.default_value  # without one in the schema: zero
    if enum is not None:
        assert isinstance(value, int)
        return enum.name_of(value)
    return as_signed(value, kind) if isinstance(value, int) else value


def as_signed(value: int, kind: Kind) -> int:
    """Returns the number that a column has for a value: of unsigned types, the signed one with the same bits."""
    if kind not in UNSIGNED_KINDS:
        return value
    half = 1 << (31 if kind in INT32_KINDS else 63)
    return value - 2 * half if value >= half else value

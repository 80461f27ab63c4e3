"""Elements of a .proto file, as a parser reads them: names are not resolved, and comments are dropped."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, Union

PROTO2: Final = "proto2"
PROTO3: Final = "proto3"
OPTIONAL: Final = "optional"
REQUIRED: Final = "required"
REPEATED: Final = "repeated"
TAG_MAX: Final = 536_870_911
"""The highest field number, which `max` means in a range."""


class Kind(Enum):
    """Kinds of option values."""

    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    NUMBER = "NUMBER"
    ENUM = "ENUM"
    MAP = "MAP"
    LIST = "LIST"
    OPTION = "OPTION"
    """A field of the option, as in `(name).field = 1`: the value is another option."""


PRIMITIVE_KINDS: Final = (Kind.BOOLEAN, Kind.NUMBER, Kind.ENUM)


class Primitive(NamedTuple):
    """A word in a map or list of option values: printed without quotes, unlike a string."""

    kind: Kind
    value: str


class Option(NamedTuple):
    name: str
    kind: Kind
    value: "Value"
    is_custom: bool = False
    """Whether its name is in parentheses: the name of an extension."""


Value: TypeAlias = str | Primitive | Option | Mapping[str, "Value"] | Sequence["Value"]
"""A sequence is always a list: strings and tuples have their own meaning."""


class Range(NamedTuple):
    first: int
    last: int


class Field(NamedTuple):
    label: str | None
    type: str
    name: str
    tag: int
    default: str | None = None
    json_name: str | None = None
    options: Sequence[Option] = ()


class Reserved(NamedTuple):
    values: Sequence[str | int | Range]


class Extensions(NamedTuple):
    values: Sequence[int | Range]
    options: Sequence[Option] = ()


class Group(NamedTuple):
    label: str | None
    name: str
    tag: int
    fields: Sequence[Field] = ()


class OneOf(NamedTuple):
    name: str
    fields: Sequence[Field] = ()
    groups: Sequence[Group] = ()
    options: Sequence[Option] = ()


class Extend(NamedTuple):
    name: str
    fields: Sequence[Field] = ()


class Constant(NamedTuple):
    name: str
    tag: int
    options: Sequence[Option] = ()


class EnumType(NamedTuple):
    name: str
    constants: Sequence[Constant] = ()
    reserved: Sequence[Reserved] = ()
    options: Sequence[Option] = ()


class Message(NamedTuple):
    name: str
    nested: Sequence[Union["Message", EnumType]] = ()
    fields: Sequence[Field] = ()
    one_ofs: Sequence[OneOf] = ()
    groups: Sequence[Group] = ()
    reserved: Sequence[Reserved] = ()
    extensions: Sequence[Extensions] = ()
    extends: Sequence[Extend] = ()
    options: Sequence[Option] = ()


Type: TypeAlias = Message | EnumType


class Rpc(NamedTuple):
    name: str
    request: str
    response: str
    is_request_stream: bool = False
    is_response_stream: bool = False
    options: Sequence[Option] = ()


class Service(NamedTuple):
    name: str
    rpcs: Sequence[Rpc] = ()
    options: Sequence[Option] = ()


class File(NamedTuple):
    syntax: str | None = None
    package: str | None = None
    imports: Sequence[str] = ()
    public_imports: Sequence[str] = ()
    types: Sequence[Type] = ()
    services: Sequence[Service] = ()
    extends: Sequence[Extend] = ()
    options: Sequence[Option] = ()

"""Message schemas as data: a Kafka message is a class whose annotations are its wire types.

    @request(ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+")
    class DeleteRecordsRequest:
        topics: Array[DeleteRecordsTopic]
        timeout_ms: Int32

A field exists in all versions unless `field(versions=...)` restricts it. The codec for a version is generated from
the class at first use (see codec.py). Instances are immutable by convention only, which keeps their creation cheap:
the type checker rejects assignments to fields.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, dataclass_transform, get_args, get_origin

from penstock.wire.keys import ApiKey

Buffer = bytes | bytearray | memoryview

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
UInt16 = Annotated[int, "uint16"]
Int32 = Annotated[int, "int32"]
UInt32 = Annotated[int, "uint32"]
Int64 = Annotated[int, "int64"]
Float64 = Annotated[float, "float64"]
String = Annotated[str, "string"]
Bytes = Annotated[bytes, "bytes"]
Uuid = Annotated[bytes, "uuid"]
"""A UUID as sixteen raw bytes: faster as a dictionary key than uuid.UUID."""
Records = Annotated[Buffer, "records"]
"""Encoded record batches, never copied: a decoded message has a memoryview of the batches in its frame."""
Array = Sequence

NIL_UUID: Final = bytes(16)
_NEVER: Final = (1, 0)
_ALWAYS: Final = (0, 32767)
_ZEROES: Final[dict[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": NIL_UUID,
    "records": None,
}
_REQUIRED: Final[Any] = object()


def version_range(text: str) -> tuple[int, int]:
    """Parses `"3-5"`, `"3+"`, `"3"` or `"none"`; returns the first and the last version.

    >>> version_range("3-5")
    (3, 5)
    """
    if text == "none":
        return _NEVER
    if text.endswith("+"):
        return int(text[:-1]), _ALWAYS[1]
    first, _, last = text.partition("-")
    return int(first), int(last or first)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """The arguments of a `field(...)` call."""

    versions: tuple[int, int] = _ALWAYS
    nullable: tuple[int, int] | None = None
    tag: int | None = None
    default: Any = _REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message schema, in the form that the code generators use."""

    name: str
    kind: str  # a primitive's name, or "struct"
    struct: type | None  # the class, where kind is "struct"
    is_array: bool
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tag: int | None
    default: Any
    required: bool

    def exists_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def may_be_null(self, version: int) -> bool:
        return self.nullable[0] <= version <= self.nullable[1]

    @property
    def ever_null(self) -> bool:
        return self.nullable != _NEVER

    def element(self) -> "Field":
        """Returns the schema of one element of an array field; elements are never null and never tagged."""
        return replace(self, is_array=False, nullable=_NEVER, tag=None, default=_REQUIRED)

    @property
    def initial(self) -> Any:
        """The field's default value, or the zero value of its type."""
        if self.default is not _REQUIRED:
            return self.default
        if self.is_array:
            return ()
        return _ZEROES.get(self.kind, 0) if self.struct is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    """The versions of a message or of an internal topic's records, and the first flexible version."""

    versions: range
    flexible_from: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Versioned):
    """The versions and API key of a request or response."""

    key: ApiKey
    is_request: bool


_SCHEMAS: Final[dict[type, tuple[Field, ...]]] = {}
_VERSIONED: Final[dict[type, Versioned]] = {}
REQUESTS: Final[dict[ApiKey, type]] = {}
RESPONSES: Final[dict[ApiKey, type]] = {}

T = TypeVar("T")


def field(
    versions: str = "0+", *, nullable: str | None = None, tag: int | None = None, default: Any = _REQUIRED
) -> Any:
    """Declares a field that is missing in some versions, nullable in some, tagged, or has a default."""
    return FieldSpec(
        versions=version_range(versions),
        nullable=version_range(nullable) if nullable else None,
        tag=tag,
        default=default,
    )


def fields_of(cls: type) -> tuple[Field, ...]:
    return _SCHEMAS[cls]


def with_field(message: T, name: str, value: Any) -> T:
    """Returns a copy of a message with field `name` set to `value`."""
    values = {entry.name: getattr(message, entry.name) for entry in fields_of(type(message))}
    return type(message)(**(values | {name: value}))


def carries_records(cls: type) -> bool:
    """Returns whether a message class contains record batches."""
    return any(
        entry.kind == "records" or (entry.struct is not None and carries_records(entry.struct))
        for entry in fields_of(cls)
    )


def versioned(cls: type) -> Versioned:
    return _VERSIONED[cls]


def message_of(cls: type) -> Message:
    found = _VERSIONED[cls]
    assert isinstance(found, Message)
    return found


def _read_field(owner: type, name: str, annotation: Any, spec: FieldSpec) -> Field:
    optional = False
    if get_origin(annotation) in (Union, UnionType):
        inner = [part for part in get_args(annotation) if part is not NoneType]
        # Records and Bytes are unions or aliases inside Annotated, so one part remains here.
        (annotation,), optional = inner, True
    is_array = get_origin(annotation) is Sequence
    if is_array:
        (annotation,) = get_args(annotation)
    if annotation in _SCHEMAS:
        kind, struct_class = "struct", annotation
    elif get_origin(annotation) is Annotated:
        kind, struct_class = annotation.__metadata__[0], None
    else:
        raise TypeError(f"{owner.__name__}.{name}: {annotation!r} is not a wire type")
    nullable = spec.nullable or (_ALWAYS if optional else _NEVER)
    return Field(
        name=name,
        kind=kind,
        struct=struct_class,
        is_array=is_array,
        versions=spec.versions,
        nullable=nullable,
        tag=spec.tag,
        default=spec.default,
        required=spec.default is _REQUIRED,
    )


def _make_struct(cls: type[T]) -> type[T]:
    """Rebuilds `cls` with slots and a keyword-only constructor for its fields."""
    namespace = dict(cls.__dict__)
    schema = []
    for name, annotation in get_annotations(cls).items():
        spec = namespace.pop(name, FieldSpec())
        if not isinstance(spec, FieldSpec):
            raise TypeError(f"{cls.__name__}.{name}: use field(default={spec!r}) instead of {spec!r}")
        schema.append(_read_field(cls, name, annotation, spec))
    names = tuple(entry.name for entry in schema)
    parameters = [
        entry.name if entry.required else f"{entry.name}=_initial_{entry.name}"
        for entry in sorted(schema, key=lambda entry: not entry.required)
    ]
    scope: dict[str, Any] = {f"_initial_{entry.name}": entry.initial for entry in schema}
    body = "".join(f"\n  self.{name} = {name}" for name in names) or "\n  pass"
    star = ", *, " if parameters else ""
    exec(f"def __init__(self{star}{', '.join(parameters)}):{body}", scope)
    for unwanted in ("__dict__", "__weakref__"):
        namespace.pop(unwanted, None)
    namespace |= {"__slots__": names, "__init__": scope["__init__"]}
    namespace |= {"__eq__": _equal, "__repr__": _show, "__hash__": None}
    made: type[T] = type(cls.__name__, (), namespace)
    _SCHEMAS[made] = tuple(schema)
    return made


def _equal(self: Any, other: Any) -> bool:
    if type(self) is not type(other):
        return False
    return all(_comparable(getattr(self, name)) == _comparable(getattr(other, name)) for name in self.__slots__)


def _comparable(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def _show(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({inside})"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Class decorator that declares a nested struct of a message; it has the versions of the message."""
    return _make_struct(cls)


def _range(versions: str) -> range:
    first, last = version_range(versions)
    return range(first, last + 1)


def _flexible_from(flexible: str) -> int:
    return 32767 if flexible == "none" else version_range(flexible)[0]


def _message(key: ApiKey, versions: str, flexible: str, is_request: bool) -> Callable[[type[T]], type[T]]:
    def make(cls: type[T]) -> type[T]:
        made = _make_struct(cls)
        _VERSIONED[made] = Message(
            key=key, is_request=is_request, versions=_range(versions), flexible_from=_flexible_from(flexible)
        )
        (REQUESTS if is_request else RESPONSES)[key] = made
        return made

    return make


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def request(key: ApiKey, *, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Class decorator that declares the request of an API."""
    return _message(key, versions, flexible, is_request=True)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def response(key: ApiKey, *, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Class decorator that declares the response of an API."""
    return _message(key, versions, flexible, is_request=False)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def record(*, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Class decorator that declares the key or the value of records in an internal topic; see state.py."""

    def make(cls: type[T]) -> type[T]:
        made = _make_struct(cls)
        _VERSIONED[made] = Versioned(versions=_range(versions), flexible_from=_flexible_from(flexible))
        return made

    return make

"""Values for every schema: two fixed samples, seeded random instances, hypothesis strategies, plain JSON."""

import itertools
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioCode

from penstock.foundation.codes import ErrorCode
from penstock.wire.schema import NIL_UUID, Field, fields_of

_RANGES: Final = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_SAMPLE_INTS: Final = {"int8": 1, "int16": 300, "uint16": 60_000, "int32": 70_000, "uint32": 3 * 10**9}
_CODES: Final = [int(code) for code in ErrorCode if int(code) in {known.value for known in KioCode}]
"""Error codes that all oracles know: kio has those of Kafka 4.3."""
_LATEST_MS: Final = 4 * 10**12


def present(cls: type, version: int) -> list[Field]:
    return [field for field in fields_of(cls) if field.exists_in(version)]


def build(cls: type, version: int, make: Callable[[Field], Any]) -> Any:
    """An instance whose fields of this version are made by `make`; the others keep their defaults."""
    values = {field.name: field.initial for field in fields_of(cls)}
    values.update((field.name, make(field)) for field in present(cls, version))
    return cls(**values)


def defaults_of(cls: type, version: int) -> Any:
    return build(cls, version, lambda field: field.initial)


def can_be_none(field: Field, version: int) -> bool:
    """Null on the wire, or a tagged struct, which is None when it is left out."""
    return field.may_be_null(version) or is_tagged_struct(field)


def is_tagged_struct(field: Field) -> bool:
    return field.tag is not None and field.struct is not None and not field.is_array


# Fixed samples: every field has a value that is neither its default nor that of another field.


def full_sample(cls: type, version: int) -> Any:
    """Every field set, arrays of two."""
    return _full(cls, version, itertools.count(1))


def _full(cls: type, version: int, counter: Iterator[int]) -> Any:
    def one(field: Field) -> Any:
        if field.struct is not None:
            return _full(field.struct, version, counter)
        return _sample_primitive(field, next(counter))

    return build(
        cls, version, lambda field: [one(field.element()) for _ in range(2)] if field.is_array else one(field)
    )


def bare_sample(cls: type, version: int) -> Any:
    """Every field that may be null is null and no tagged field is set, arrays of two otherwise."""

    def one(field: Field) -> Any:
        if field.struct is not None:
            return bare_sample(field.struct, version)
        if field.initial is None:  # null in other versions only
            return "" if field.kind == "string" else b""
        return field.initial

    def make(field: Field) -> Any:
        if field.may_be_null(version) and field.tag is None:
            return None
        if field.tag is not None:
            return field.initial
        return [one(field.element()) for _ in range(2)] if field.is_array else one(field)

    return build(cls, version, make)


def _sample_primitive(field: Field, number: int) -> Any:
    if field.name.endswith("error_code"):
        return number if number < 130 else 1 + number % 100  # larger ones are no codes of Kafka
    if field.kind == "string":
        return f"{field.name}-ü{number}"
    if field.kind in ("bytes", "records"):
        return f"{field.name} {number}".encode()
    if field.kind == "uuid":
        return bytes([number]) * 16
    if field.kind == "bool":
        return not field.initial
    if field.kind == "float64":
        return number + 0.5
    value = _SAMPLE_INTS.get(field.kind, 10**12) + number
    return value if field.kind != "int8" or value < 128 else 1 + value % 100


# Seeded random instances, which the oracles can say too.


def random_instance(cls: type, version: int, random: Random) -> Any:
    def one(field: Field) -> Any:
        if field.struct is not None:
            return random_instance(field.struct, version, random)
        return _random_primitive(field, random)

    def make(field: Field) -> Any:
        if can_be_none(field, version) and random.random() < 0.25:
            return None
        if field.is_array:
            return [one(field.element()) for _ in range(random.choice((0, 1, 2, 3)))]
        return without_default_struct(field, version, one(field))

    return build(cls, version, make)


def without_default_struct(field: Field, version: int, value: Any) -> Any:
    """A tagged struct that says nothing but defaults is left out by everyone else, which reads as None."""
    if value is None or field.struct is None or not is_tagged_struct(field):
        return value
    return None if value == defaults_of(field.struct, version) else value


def _random_primitive(field: Field, random: Random) -> Any:
    if field.name.endswith("error_code"):
        return random.choice(_CODES)
    if field.kind == "string":
        # Long ones too, whose length takes two bytes.
        return "".join(random.choices("ab-. é中🜁", k=random.choice((0, 1, 7, 31, 200))))
    if field.kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 61, 300)))
    if field.kind == "uuid":
        return random.choice((NIL_UUID, random.randbytes(16)))
    if field.kind == "bool":
        return random.random() < 0.5
    if field.kind == "float64":
        return random.uniform(-1e9, 1e9)
    if field.kind == "int64" and ("timestamp" in field.name or field.name.endswith("_ms")):
        return random.randint(0, _LATEST_MS)  # kio makes a datetime of it
    low, high = _RANGES[field.kind]
    return random.choice((low, high, 0, random.randint(low, high)))


# Hypothesis.


def instances(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Any instance of the class that this version can say."""

    def one(field: Field) -> st.SearchStrategy[Any]:
        if field.struct is not None:
            return instances(field.struct, version)
        return _PRIMITIVES[field.kind]

    def strategy(field: Field) -> st.SearchStrategy[Any]:
        found = st.lists(one(field.element()), max_size=3) if field.is_array else one(field)
        return st.none() | found if can_be_none(field, version) else found

    drawn = {field.name: strategy(field) for field in present(cls, version)}
    absent = {field.name: st.just(field.initial) for field in fields_of(cls) if field.name not in drawn}
    return st.builds(cls, **drawn, **absent)


_TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=12) | st.just("long" * 40)
_BLOBS: Final = st.binary(max_size=12) | st.just(b"long" * 40)
_PRIMITIVES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": _BLOBS,
    "records": _BLOBS,
    "uuid": st.binary(min_size=16, max_size=16),
    **{kind: st.integers(low, high) for kind, (low, high) in _RANGES.items()},
}


# Plain JSON, for the golden files.


def to_plain(value: Any, version: int) -> Any:
    """JSON of an instance: the fields of this version, bytes and UUIDs in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [to_plain(item, version) for item in value]
    if hasattr(type(value), "__slots__"):
        fields = present(type(value), version)
        return {field.name: to_plain(getattr(value, field.name), version) for field in fields}
    return value


def from_plain(cls: type, version: int, plain: dict[str, Any]) -> Any:
    """The instance that `to_plain` showed."""
    names = [field.name for field in present(cls, version)]
    if list(plain) != names:
        raise ValueError(f"{cls.__name__} v{version} has fields {names}, its golden line has {list(plain)}")

    def one(field: Field, value: Any) -> Any:
        if field.struct is not None:
            return from_plain(field.struct, version, value)
        return bytes.fromhex(value) if field.kind in ("bytes", "records", "uuid") else value

    def make(field: Field) -> Any:
        value = plain[field.name]
        if value is None:
            return None
        return [one(field, item) for item in value] if field.is_array else one(field, value)

    return build(cls, version, make)

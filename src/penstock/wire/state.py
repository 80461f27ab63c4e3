"""Records of internal topics: a key or a value is a version in two bytes, then a message of that version.

A key's version says what kind of record it is, and keys are all of one version.
"""

import struct
from typing import Any, Final, TypeVar

from penstock.foundation.decision import StateRecord
from penstock.foundation.errors import MalformedRequest
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.schema import versioned

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

KEY_VERSION: Final = 0
_VERSION: Final = struct.Struct(">h")


def state_record(kind: int, key: Any, value: Any | None, version: int = 0, *, meant: Any = None) -> StateRecord:
    """A record that says what holds for a key from now on; None: nothing.

    `meant`: what whoever applies it would make of the value, if that is not the value itself.
    """
    return StateRecord(
        key=_VERSION.pack(kind) + encode_bytes(key, KEY_VERSION),
        value=None if value is None else _VERSION.pack(version) + encode_bytes(value, version),
        parsed=(key, value if meant is None else meant),
    )


def read_record(record: StateRecord, key_class: type[K], value_class: type[V]) -> tuple[K, V | None]:
    """What a record's key and value say."""
    if record.parsed is not None:
        return record.parsed
    key = read_key(key_class, record.key)
    return key, None if record.value is None else read_value(value_class, record.value)


def kind_of(key: bytes) -> int:
    """What kind of record a key is of."""
    try:
        kind: int = _VERSION.unpack_from(key)[0]
    except struct.error as error:
        raise MalformedRequest(f"a record's key of {len(key)} bytes has no version") from error
    return kind


def read_key(cls: type[T], key: bytes) -> T:
    return decode(cls, KEY_VERSION, key, _VERSION.size)


def read_value(cls: type[T], value: bytes) -> T:
    """A value, of whatever version it was written in."""
    version = kind_of(value)
    if version not in versioned(cls).versions:
        raise MalformedRequest(f"{cls.__name__} of version {version} is not known to this broker")
    return decode(cls, version, value, _VERSION.size)

"""Records of internal topics: key and value are each a two-byte version, then a message of that version.

A key's version is the type of the record; the key's schema always has version 0.
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


def state_record(kind: int, key: Any, value: Any | None, version: int = 0, *, parsed: Any = None) -> StateRecord:
    """Builds a record of type `kind` that sets the value of a key; a `value` of None builds a tombstone.

    `parsed`: the value in the form that the state machine's `apply` uses, if that is not `value` itself.
    """
    return StateRecord(
        key=_VERSION.pack(kind) + encode_bytes(key, KEY_VERSION),
        value=None if value is None else _VERSION.pack(version) + encode_bytes(value, version),
        parsed=(key, value if parsed is None else parsed),
    )


def read_record(record: StateRecord, key_class: type[K], value_class: type[V]) -> tuple[K, V | None]:
    """Returns the decoded key and value of a record."""
    if record.parsed is not None:
        return record.parsed
    key = read_key(key_class, record.key)
    return key, None if record.value is None else read_value(value_class, record.value)


def kind_of(key: bytes) -> int:
    """Returns the record type that an encoded key starts with."""
    try:
        kind: int = _VERSION.unpack_from(key)[0]
    except struct.error as error:
        raise MalformedRequest(f"a record's key of {len(key)} bytes has no version") from error
    return kind


def read_key(cls: type[T], key: bytes) -> T:
    return decode(cls, KEY_VERSION, key, _VERSION.size)


def read_value(cls: type[T], value: bytes) -> T:
    """Decodes a value of any version that this broker knows. Raises MalformedRequest for a newer version."""
    version = kind_of(value)
    if version not in versioned(cls).versions:
        raise MalformedRequest(f"{cls.__name__} of version {version} is not known to this broker")
    return decode(cls, version, value, _VERSION.size)

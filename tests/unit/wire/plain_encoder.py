"""A second, plain encoder: field by field, nothing fused and nothing generated.

It makes the golden bytes of messages that no oracle knows (our own APIs), is a third opinion on the rest, and
says what our own encoder never would: nulls where there may be none, and tagged fields from the future.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

from penstock.wire.schema import Field

from .catalogue import is_flexible
from .values import present

_CODES: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
_NO_TAGS: Final[Mapping[int, bytes]] = {}


def encode_plainly(message: Any, version: int, unknown: Mapping[int, bytes] = _NO_TAGS) -> bytes:
    """The message's bytes. `unknown` are tagged fields to add to every struct, as a newer peer might."""
    return _PlainEncoder(version, is_flexible(type(message), version), unknown).struct(message)


class _PlainEncoder:
    def __init__(self, version: int, flexible: bool, unknown: Mapping[int, bytes]) -> None:
        self.version = version
        self.flexible = flexible
        self.unknown = unknown

    def struct(self, value: Any) -> bytes:
        fields = [(field, getattr(value, field.name)) for field in present(type(value), self.version)]
        plain = b"".join(self.field(field, item) for field, item in fields if field.tag is None)
        if not self.flexible:
            return plain
        tags = dict(self.unknown)
        for field, item in fields:
            if field.tag is not None and not _is_default(field, item):
                tags[field.tag] = self.field(field, item)
        written = [varint(tag) + varint(len(body)) + body for tag, body in sorted(tags.items())]
        return plain + varint(len(tags)) + b"".join(written)

    def field(self, field: Field, value: Any) -> bytes:
        if field.is_array:
            items = [self.field(field.element(), item) for item in value or ()]
            return self.length(value, 4) + b"".join(items)
        if field.struct is not None:
            if not field.may_be_null(self.version):
                return self.struct(value)
            return b"\xff" if value is None else b"\x01" + self.struct(value)
        if field.kind in _CODES:
            return struct.pack(">" + _CODES[field.kind], value)
        body = value.encode() if isinstance(value, str) else value
        return self.length(body, 2 if field.kind == "string" else 4) + bytes(body or b"")

    def length(self, value: Any, size: int) -> bytes:
        count = -1 if value is None else len(value)
        return varint(count + 1) if self.flexible else count.to_bytes(size, "big", signed=True)


def _is_default(field: Field, value: Any) -> bool:
    if field.is_array and value is not None and field.initial is not None:
        return list(value) == list(field.initial)
    return bool(value == field.initial)


def varint(value: int) -> bytes:
    low, rest = value % 128, value // 128
    return bytes([low]) if rest == 0 else bytes([low + 128]) + varint(rest)

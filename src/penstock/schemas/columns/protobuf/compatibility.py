"""Checks that messages of one version of a Protobuf schema can be decoded with the fields of another."""

from typing import Any, Final

from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.columns.protobuf.plan import Kind

_NUMBER: Final = "a number in a varint"
_TYPES: Final = {
    **dict.fromkeys((Kind.INT32, Kind.INT64, Kind.UINT32, Kind.UINT64, Kind.BOOL, Kind.ENUM), _NUMBER),
    **dict.fromkeys((Kind.SINT32, Kind.SINT64), "a zigzag number"),
    **dict.fromkeys((Kind.FIXED32, Kind.SFIXED32), "a number of 4 bytes"),
    **dict.fromkeys((Kind.FIXED64, Kind.SFIXED64), "a number of 8 bytes"),
    **dict.fromkeys((Kind.STRING, Kind.BYTES), "a string or bytes"),
    Kind.FLOAT: "a float",
    Kind.DOUBLE: "a double",
    Kind.MESSAGE: "a message",
}
"""Types that are read as each other have the same description."""
_LENGTH_DELIMITED: Final = (Kind.STRING, Kind.BYTES, Kind.MESSAGE)


def check_same_fields(writer: Any, reader: Any) -> None:
    """Raises IncompatibleTypes if a field of both descriptors, or of messages in them, has types that do not agree.

    Messages are compared by their fields; their names do not matter.
    """
    pending = [(writer, reader, "")]
    seen: set[tuple[str, str]] = set()
    while pending:
        old, new, path = pending.pop()
        if (old.full_name, new.full_name) in seen:
            continue
        seen.add((old.full_name, new.full_name))
        for field in new.fields:
            written = old.fields_by_number.get(field.number)
            if written is None:
                continue
            field_path = f"{path}{field.name}"
            old_type, new_type = _describe(written), _describe(field)
            if old_type != new_type:
                raise IncompatibleTypes(
                    f"Field {field_path!r} was written as {old_type}, and cannot be read as {new_type}"
                )
            if Kind(field.type) is Kind.MESSAGE:
                pending.append((written.message_type, field.message_type, f"{field_path}."))


def _describe(field: Any) -> str:
    kind = Kind(field.type)
    if kind in _LENGTH_DELIMITED or not field.is_repeated:
        return _TYPES[kind]
    return f"a repeated field: {_TYPES[kind]}"

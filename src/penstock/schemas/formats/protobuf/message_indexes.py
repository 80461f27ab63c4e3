"""Message indexes: which message of a schema serialized data has. They stand between the schema id and the data.

The indexes [2, 0] mean the first message nested in the third one of the file.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.foundation.errors import CorruptMessage
from penstock.records.varint import decode_varint, encode_varint
from penstock.schemas.formats.protobuf.elements import File, Message, Type
from penstock.schemas.formats.protobuf.limits import NESTING_MAX

if TYPE_CHECKING:
    from penstock.schemas.formats.protobuf.schema import ProtobufSchema

FIRST_MESSAGE: Final = (0,)


def read_message_indexes(data: bytes, at: int = 0) -> tuple[tuple[int, ...], int]:
    """Returns the indexes that begin at position `at`, and the position of the data after them.

    Raises CorruptMessage for bytes that are no indexes, or that end too early.
    """
    try:
        count, at = decode_varint(data, at)
        if not 0 <= count <= NESTING_MAX:
            raise CorruptMessage(f"a message has at most {NESTING_MAX} message indexes, this one has {count}")
        if count == 0:
            return FIRST_MESSAGE, at
        indexes = []
        for _ in range(count):
            index, at = decode_varint(data, at)
            indexes.append(index)
    except IndexError:
        raise CorruptMessage("the data ends before its message indexes do") from None
    if min(indexes) < 0:
        raise CorruptMessage(f"message indexes are not negative, as {min(indexes)} is")
    return tuple(indexes), at


def write_message_indexes(indexes: Sequence[int]) -> bytes:
    """Encodes indexes; those of the first message as one zero byte, as Confluent's serializers do."""
    if tuple(indexes) == FIRST_MESSAGE:
        return encode_varint(0)
    return encode_varint(len(indexes)) + b"".join(map(encode_varint, indexes))


def message_name(schema: "ProtobufSchema", indexes: Sequence[int]) -> str | None:
    """Returns the full name of a message, None if the schema has no message with these indexes.

    A schema that only imports one file publicly stands for that file.
    """
    file = _with_types(schema)
    names = []
    types: Sequence[Type] = file.types
    for index in indexes or FIRST_MESSAGE:
        messages = [each for each in types if isinstance(each, Message)]
        if not 0 <= index < len(messages):
            return None
        names.append(messages[index].name)
        types = messages[index].nested
    return ".".join([file.package, *names] if file.package else names)


def messages_by_name(schema: "ProtobufSchema") -> dict[str, tuple[int, ...]]:
    """Returns the indexes of all messages of a schema by their full names, in the order of the schema."""
    file = _with_types(schema)
    found: dict[str, tuple[int, ...]] = {}

    def add(prefix: str, indexes: tuple[int, ...], types: Sequence[Type]) -> None:
        messages = (each for each in types if isinstance(each, Message))
        for index, message in enumerate(messages):
            name = f"{prefix}{message.name}"
            found[name] = (*indexes, index)
            add(f"{name}.", found[name], message.nested)

    add(f"{file.package}." if file.package else "", (), file.types)
    return found


def _with_types(schema: "ProtobufSchema") -> File:
    """Returns the file that has the schema's messages: its own, or the only one that it imports, if it is empty."""
    file = schema.file
    if file.types or file.imports or file.services or file.extends or len(file.public_imports) != 1:
        return file
    imported = schema.files.get(file.public_imports[0])
    return imported if imported is not None and imported.types else file

"""Finds the message of a Protobuf schema that has the columns, and its descriptor."""

from typing import TYPE_CHECKING, Any

from penstock.schemas.columns.codec import NoColumnType
from penstock.schemas.formats.protobuf.file_sets import file_descriptor_set
from penstock.schemas.formats.protobuf.message_indexes import FIRST_MESSAGE, message_name, messages_by_name

if TYPE_CHECKING:
    from penstock.schemas.formats.protobuf.schema import ProtobufSchema


def name_of_message(schema: "ProtobufSchema", message: str | None) -> str:
    """Returns the full name of a message: of `message`, which may lack the package, or of the schema's first one.

    Raises NoColumnType if the schema does not define it.
    """
    if message is None:
        first = message_name(schema, FIRST_MESSAGE)
        if first is None:
            raise NoColumnType("The schema defines no message; a column needs one")
        return first
    names = messages_by_name(schema)
    for name in (message, f"{schema.file.package}.{message}"):
        if name in names:
            return name
    known = ", ".join(list(names)[:10])
    raise NoColumnType(f"The schema does not define message {message!r}; it defines {known or 'no message'}")


def message_descriptor(schema: "ProtobufSchema", name: str) -> Any:
    """Returns the descriptor of a message by its full name. Raises NoColumnType for schemas that are refused by the
    Protobuf library, which is stricter than a registry."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(file_descriptor_set(schema)).file:
            pool.Add(file)
    except TypeError as error:
        raise NoColumnType(f"The Protobuf library refuses the schema: {error}") from None
    return pool.FindMessageTypeByName(name)

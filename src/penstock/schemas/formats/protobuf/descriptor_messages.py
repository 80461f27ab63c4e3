"""The messages of descriptor.proto with Confluent's options, in a pool of their own. Loads the `protobuf` library.

Only here is the library imported, and when a function needs it: a process that sees no schema does not load it.
"""

from functools import cache
from typing import Any, Final

from penstock.schemas.formats.protobuf.option_tables import META_EXTENSIONS, META_NUMBER, RULE_FIELDS

_STRING, _MESSAGE, _OPTIONAL, _REPEATED = 9, 11, 1, 3
PROTOBUF_FILES: Final = (
    "any",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
"""Files of google/protobuf/ that every schema may import."""


class DescriptorMessages:
    """Classes of the messages, and the extensions that carry Confluent's options."""

    def __init__(self) -> None:
        from google.protobuf import descriptor_pb2
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message_factory import GetMessageClass

        pool = DescriptorPool()
        pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
        pool.Add(_meta_file(descriptor_pb2.FileDescriptorProto()))
        self.File: Any = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
        self.FileSet: Any = GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorSet"))
        self.metas: dict[str, Any] = {
            owner: pool.FindExtensionByName(f"confluent.{name}") for owner, name in META_EXTENSIONS.items()
        }
        self.field_types: dict[int, str] = {
            each.number: each.name.removeprefix("TYPE_").lower()
            for each in pool.FindEnumTypeByName("google.protobuf.FieldDescriptorProto.Type").values
        }


@cache
def descriptor_messages() -> DescriptorMessages:
    return DescriptorMessages()


def serialized_protobuf_file(name: str) -> bytes:
    """Returns the descriptor of google/protobuf/`name`.proto."""
    from importlib import import_module

    serialized: bytes = import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.serialized_pb
    return serialized


def _meta_file(file: Any) -> Any:
    """confluent/meta.proto, but with a list instead of a map: the order of its entries is part of stored texts."""
    file.name, file.package, file.syntax = "confluent/meta.proto", "confluent", "proto2"
    file.dependency.append("google/protobuf/descriptor.proto")
    meta = file.message_type.add(name="Meta")
    meta.field.add(name="doc", number=1, type=_STRING, label=_OPTIONAL)
    meta.field.add(name="params", number=2, type=_MESSAGE, type_name=".confluent.Param", label=_REPEATED)
    meta.field.add(name="tags", number=3, type=_STRING, label=_REPEATED)
    meta.field.add(name="rules", number=4, type=_MESSAGE, type_name=".confluent.Rule", label=_REPEATED)
    for message, names in (("Param", ("key", "value")), ("Rule", RULE_FIELDS)):
        added = file.message_type.add(name=message)
        for number, name in enumerate(names, 1):
            added.field.add(name=name, number=number, type=_STRING, label=_OPTIONAL)
    for owner, name in META_EXTENSIONS.items():
        file.extension.add(
            name=name,
            number=META_NUMBER,
            type=_MESSAGE,
            type_name=".confluent.Meta",
            label=_OPTIONAL,
            extendee=f".google.protobuf.{owner}",
        )
    return file

"""Serialized file descriptors of a schema: alone, or with all files that it imports, as Spark needs them."""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.schemas.formats.protobuf.descriptor_builder import build_descriptor
from penstock.schemas.formats.protobuf.descriptor_messages import (
    PROTOBUF_FILES,
    descriptor_messages,
    serialized_protobuf_file,
)
from penstock.schemas.formats.protobuf.errors import invalid
from penstock.schemas.formats.protobuf.linking import link, order_files

if TYPE_CHECKING:
    from penstock.schemas.formats.protobuf.elements import File
    from penstock.schemas.formats.protobuf.schema import ProtobufSchema

ROOT_NAME: Final = "default"
"""The name that Confluent's registry gives to the file of the schema itself."""
_PROTOBUF_FILES: Final = {f"google/protobuf/{name}.proto": name for name in PROTOBUF_FILES}


def serialized_descriptor(schema: "ProtobufSchema") -> str:
    """Returns the file descriptor of the schema in base64: the format that Confluent's Python clients ask for.

    Raises InvalidSchema if Java could not build classes from it.
    """
    return base64.b64encode(_descriptors(schema)[-1].SerializeToString()).decode()


def file_descriptor_set(schema: "ProtobufSchema") -> bytes:
    """Returns a serialized FileDescriptorSet: the schema comes last, after all files that it imports, by their paths.

    This is what Spark's `from_protobuf(data, messageName, binaryDescriptorSet=...)` takes, with the message's full
    name. Raises InvalidSchema as `serialized_descriptor`.
    """
    serialized: bytes = descriptor_messages().FileSet(file=_descriptors(schema)).SerializeToString()
    return serialized


def check_descriptors(schema: "ProtobufSchema") -> None:
    """Raises InvalidSchema if Java could not build classes from the schema and the files that it imports."""
    _descriptors(schema)


def _descriptors(schema: "ProtobufSchema") -> list[Any]:
    files: Mapping[str, File] = schema.files
    imports = {name: _imports(file, files) for name, file in files.items()}
    imports[ROOT_NAME] = _imports(schema.file, files)
    if ROOT_NAME in files and any(ROOT_NAME in each for each in imports.values()):
        raise invalid(f"a reference must not have the name {ROOT_NAME!r}: the schema itself has it")
    messages = descriptor_messages()
    built = []
    for name in order_files(ROOT_NAME, imports):
        if name in _PROTOBUF_FILES and name not in schema.references:
            built.append(messages.File.FromString(serialized_protobuf_file(_PROTOBUF_FILES[name])))
            continue
        file = schema.file if name == ROOT_NAME else files[name]
        built.append(build_descriptor(name, file, schema.names.scope(file.package or ""), imports[name], messages))
    link(built)
    return built


def _imports(file: "File", files: Mapping[str, "File"]) -> list[str]:
    """Returns the paths that a file imports. As in Confluent's registry, unknown ones do not count."""
    return [path for path in (*file.imports, *file.public_imports) if path in files]

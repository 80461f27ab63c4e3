"""Protobuf schemas: .proto texts and serialized file descriptors."""

from penstock.schemas.formats.protobuf.schema import ProtobufSchema, parse

__all__ = ["ProtobufSchema", "parse"]

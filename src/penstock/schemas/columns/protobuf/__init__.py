"""Columns of Protobuf messages: their types, decoders and encoders, and schemas for column types."""

from penstock.schemas.columns.protobuf.codec import protobuf_decoder, protobuf_encoder, protobuf_type
from penstock.schemas.columns.protobuf.derivation import protobuf_schema_of

__all__ = ["protobuf_decoder", "protobuf_encoder", "protobuf_schema_of", "protobuf_type"]

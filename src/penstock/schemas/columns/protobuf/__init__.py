"""Columns of Protobuf messages: their types, decoders and encoders, and schemas for column types."""

from penstock.schemas.columns.protobuf.codec import protobuf_decoder, protobuf_encoder, protobuf_type

__all__ = ["protobuf_decoder", "protobuf_encoder", "protobuf_type"]

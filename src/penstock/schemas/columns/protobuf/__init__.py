"""Columns of Protobuf messages: their types, decoders and encoders, and schemas for column types."""

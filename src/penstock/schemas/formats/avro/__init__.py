"""Avro schemas: parses them, prints them as Java does, and compares versions. See `model` for schemas as values."""

from penstock.schemas.formats.avro.schema import AvroSchema, parse

__all__ = ["AvroSchema", "parse"]

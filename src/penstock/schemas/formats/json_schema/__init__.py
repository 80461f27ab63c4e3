"""JSON Schema, drafts 4 to 2020-12."""

from penstock.schemas.formats.json_schema.schema import JsonSchema, parse

__all__ = ["JsonSchema", "parse"]

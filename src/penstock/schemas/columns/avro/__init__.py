"""Decodes Avro into Arrow columns, and encodes Arrow columns as Avro. The types are those of Spark's `from_avro`."""

from penstock.schemas.columns.avro.decoder import avro_decoder
from penstock.schemas.columns.avro.types import avro_type

__all__ = ["avro_decoder", "avro_type"]

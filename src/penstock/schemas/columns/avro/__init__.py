"""Decodes Avro into Arrow columns, and encodes Arrow columns as Avro. The types are those of Spark's `from_avro`."""

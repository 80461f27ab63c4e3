"""Schemas: the formats Avro, JSON Schema and Protobuf, and the state of the schema registry."""

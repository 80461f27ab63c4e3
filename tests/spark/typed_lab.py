"""Topics with typed messages: Confluent's serializers write them, and the data source reads them without Spark."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.types import StructType

from penstock.spark.reader import BatchReader
from tests.clients.drivers import Outgoing

from .lab import Lab, rows_of


def json_schema(required: Sequence[str] = ("id",), **properties: str) -> str:
    """An object with properties of these types."""
    return json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Order",
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in properties.items()},
            "required": list(required),
        }
    )


ORDER_JSON = json_schema(id="integer", item="string")
ORDERS = [{"id": number, "item": f"item {number}"} for number in range(5)]


class TypedLab:
    """A topic, and the registry of its broker."""

    def __init__(self, lab: Lab, registry: SchemaRegistryClient, http: str, topic: str) -> None:
        self.lab = lab
        self.registry = registry
        self.http = http
        self.topic = topic
        self.url = f"http://{http}/registry"
        self.lab.create(topic)

    def other(self, suffix: str) -> "TypedLab":
        """Another topic on the same broker."""
        return TypedLab(self.lab, self.registry, self.http, f"{self.topic}-{suffix}")

    def register(self, text: str, kind: str = "AVRO", part: str = "value") -> int:
        return self.registry.register_schema(f"{self.topic}-{part}", Schema(text, kind))

    def encode_json(self, rows: Sequence[object], schema: str = ORDER_JSON) -> list[bytes]:
        return self._encode(rows, JSONSerializer(schema, self.registry))

    def encode_avro(
        self, rows: Sequence[object], schema: str, part: MessageField = MessageField.VALUE
    ) -> list[bytes]:
        return self._encode(rows, AvroSerializer(self.registry, schema), part)

    def _encode(self, rows: Sequence[object], serialize: Any, part: MessageField = MessageField.VALUE) -> list[bytes]:
        context = SerializationContext(self.topic, part)
        return [serialize(row, context) for row in rows]

    def produce(self, *values: bytes | None) -> None:
        self.lab.fill(self.topic, [Outgoing(value=value) for value in values])

    def options(self, **options: str) -> dict[str, str]:
        """Options to read the topic with the registry."""
        return self.lab.options(self.topic, schemaRegistry=self.url, **options)

    def write_options(self, **options: str) -> dict[str, str]:
        """Options to write the topic with the registry."""
        return {"topic": self.topic, **self.lab.options(schemaRegistry=self.url, **options)}

    def reader(self, schema: StructType | None = None, **options: str) -> BatchReader:
        return self.reader_of(self.options(**options), schema)

    def reader_of(self, options: Mapping[str, str], schema: StructType | None = None) -> BatchReader:
        source = self.lab.source(options)
        reader = source.reader(source.schema() if schema is None else schema)
        assert isinstance(reader, BatchReader)
        return reader

    def rows(self, schema: StructType | None = None, **options: str) -> list[dict[str, Any]]:
        return rows_of(self.reader(schema, **options))

    def values(self, **options: str) -> list[Any]:
        return [row["value"] for row in self.rows(**options)]

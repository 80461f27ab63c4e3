"""Confluent's registry client and serializers work unchanged: Avro, JSON Schema, Protobuf, also with references."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.brokers import BrokerProcess

from .rest_client import record

ORDER = record("id:long", "item:string")
JSON_ORDER = """
{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
 "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}, "required": ["id"]}
"""
ROWS = [{"id": number, "item": f"item {number}"} for number in range(10)]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"http://{broker.http}/registry"}) as made:
        yield made


def sent_and_received(
    broker: BrokerProcess, topic: str, rows: list[Any], serialize: Callable[..., Any], deserialize: Callable[..., Any]
) -> list[Any]:
    """Returns the rows after their way through a topic."""
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": broker.kafka})
    for row in rows:
        producer.produce(topic, serialize(row, context))
    assert producer.flush(120) == 0
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < len(rows):
        message = consumer.poll(120)
        assert message is not None, f"only {len(found)} messages came"
        assert message.error() is None, message.error()
        found.append(deserialize(message.value(), context))
    consumer.close()
    return found


def test_avro_goes_through_a_topic(
    broker: BrokerProcess, client: SchemaRegistryClient, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    found = sent_and_received(broker, topic, ROWS, AvroSerializer(client, ORDER), AvroDeserializer(client))
    assert found == ROWS
    assert client.get_latest_version(f"{topic}-value").version == 1


def test_avro_is_read_with_a_newer_schema(
    broker: BrokerProcess, client: SchemaRegistryClient, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    newer = record("id:long", "item:string", 'tag:string="none"')
    read = AvroDeserializer(client, newer)
    found = sent_and_received(broker, topic, ROWS, AvroSerializer(client, ORDER), read)
    assert found == [row | {"tag": "none"} for row in ROWS]


def test_json_goes_through_a_topic(
    broker: BrokerProcess, client: SchemaRegistryClient, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    read = JSONDeserializer(JSON_ORDER, schema_registry_client=client)
    found = sent_and_received(broker, topic, ROWS, JSONSerializer(JSON_ORDER, client), read)
    assert found == ROWS
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"


def order_type(package: str) -> Any:
    """A message type `Order` that imports another file, made as protoc would."""
    item = descriptor_pb2.FileDescriptorProto(name=f"{package}/item.proto", package=package, syntax="proto3")
    message = item.message_type.add(name="Item")
    message.field.add(name="sku", number=1, type=9, label=1, json_name="sku")
    order = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/order.proto", package=package, syntax="proto3", dependency=[item.name]
    )
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1, json_name="id")
    message.field.add(name="item", number=2, type=11, label=1, json_name="item", type_name=f".{package}.Item")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(item)
    pool.Add(order)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


def test_protobuf_goes_through_a_topic_with_its_imports(
    broker: BrokerProcess, client: SchemaRegistryClient, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    order = order_type(topic)
    rows = [order(id=row["id"], item={"sku": row["item"]}) for row in ROWS]
    write = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    assert sent_and_received(broker, topic, rows, write, read) == rows
    latest = client.get_latest_version(f"{topic}-value")
    assert [each.name for each in latest.schema.references or []] == [f"{topic}/item.proto"]
    assert latest.schema.schema_str is not None
    assert f'import "{topic}/item.proto";' in latest.schema.schema_str


def test_the_client_manages_subjects(client: SchemaRegistryClient, subject: str) -> None:
    schema = Schema(ORDER, "AVRO")
    number = client.register_schema(subject, schema)
    assert client.get_schema(number).schema_str == ORDER
    assert client.lookup_schema(subject, schema).version == 1
    assert subject in client.get_subjects()
    assert client.get_versions(subject) == [1]
    assert client.test_compatibility(subject, Schema(record("id:long", "item:string", "n:int=0"), "AVRO"))
    assert not client.test_compatibility(subject, Schema(record("id:string"), "AVRO"))
    client.set_compatibility(subject, "FULL")
    assert client.get_compatibility(subject) == "FULL"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema(record("id:string"), "AVRO"))
    assert refused.value.http_status_code == 409
    assert client.delete_subject(subject) == [1]
    assert client.delete_subject(subject, permanent=True) == [1]


def test_the_client_registers_references(client: SchemaRegistryClient, new_name: Callable[[], str]) -> None:
    item, order = new_name(), new_name()
    client.register_schema(item, Schema(record("sku:string", name="Item"), "AVRO"))
    references = [SchemaReference("Item", item, 1)]
    number = client.register_schema(order, Schema(record("id:long", "item:Item"), "AVRO", references))
    assert client.get_schema(number).references == references

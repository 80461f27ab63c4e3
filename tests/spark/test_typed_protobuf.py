"""Protobuf values, read without Spark, as Confluent's serializer writes them."""

from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.spark.errors import BadOption
from tests.registry.test_confluent_clients import order_type

from .typed_lab import TypedLab

PROTOBUF = {"valueFormat": "protobuf"}
NESTED = """
syntax = "proto3";
package shop;
message Item { string sku = 1; }
message Order { int64 id = 1; repeated Item items = 2; message Note { string text = 1; } }
"""


def encode(typed: TypedLab, rows: list[Any]) -> list[bytes]:
    serialize = ProtobufSerializer(type(rows[0]), typed.registry, {"use.deprecated.format": False})
    return [serialize(row, SerializationContext(typed.topic, MessageField.VALUE)) for row in rows]


def test_messages_of_confluents_protobuf_serializer_are_structs(typed: TypedLab) -> None:
    order = order_type(typed.topic.replace("-", "_"))
    typed.produce(*encode(typed, [order(id=7, item={"sku": "tea"}), order(id=8)]), None)
    kind = typed.lab.source(typed.options(**PROTOBUF)).schema()["value"].dataType.simpleString()
    assert kind == "struct<id:bigint,item:struct<sku:string>>"
    assert typed.values(**PROTOBUF) == [{"id": 7, "item": {"sku": "tea"}}, {"id": 8, "item": None}, None]


def test_the_message_is_chosen_by_its_name_and_others_are_bad(typed: TypedLab) -> None:
    header = b"\0" + typed.register(NESTED, "PROTOBUF").to_bytes(4, "big")
    item, order, note = b"\0", b"\x02\x02", b"\x04\x02\x00"  # indexes [0], [1], [1, 0]
    typed.produce(header + order + b"\x08\x05", header + item + b"\x0a\x03tea", header + note + b"\x0a\x01x")
    rows = typed.rows(valueMessage="shop.Order", onBadRecord="null", **PROTOBUF)
    assert [row["value"] for row in rows] == [{"id": 5, "items": []}, None, None]
    assert rows[1]["badRecord"]["reason"].endswith("the message indexes name another message")
    rows = typed.rows(valueMessage="shop.Order.Note", onBadRecord="null", **PROTOBUF)
    assert [row["value"] for row in rows] == [None, None, {"text": "x"}]
    with pytest.raises(BadOption, match=r"shop\.Ordre"):
        typed.rows(valueMessage="shop.Ordre", **PROTOBUF)


def test_fields_of_a_newer_version_are_null_in_older_messages(typed: TypedLab) -> None:
    old = typed.register('syntax = "proto3"; message Order { int64 id = 1; }', "PROTOBUF")
    new = typed.registry.register_schema(
        f"{typed.topic}-value",
        Schema('syntax = "proto3"; message Order { int64 id = 1; optional string tag = 2; }', "PROTOBUF"),
    )
    typed.produce(
        b"\0" + old.to_bytes(4, "big") + b"\0\x08\x01", b"\0" + new.to_bytes(4, "big") + b"\0\x08\x02\x12\x01x"
    )
    assert typed.values(**PROTOBUF) == [{"id": 1, "tag": None}, {"id": 2, "tag": "x"}]
    assert typed.values(valueSchemaVersion="1", **PROTOBUF) == [{"id": 1}, {"id": 2}]

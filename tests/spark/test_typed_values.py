"""Typed keys and values, read without Spark: formats, bad records, and what the registry has to do with them."""

import json
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructType

from penstock.spark.errors import BadOption, BadSchema
from penstock.spark.values.bad_records import BadRecord
from tests.clients.drivers import Outgoing

from .lab import Lab, rows_of
from .typed_lab import ORDER_JSON, ORDERS, TypedLab, json_schema

JSON = {"valueFormat": "json-schema"}
DDL = "id BIGINT, item STRING"


def plain(lab: Lab, topic: str, *values: bytes | None, **options: str) -> list[dict[str, Any]]:
    """What is read of these values."""
    lab.create(topic)
    lab.fill(topic, [Outgoing(key=b"k%d" % number, value=value) for number, value in enumerate(values)])
    source = lab.source(lab.options(topic, **options))
    reader: Any = source.reader(source.schema())
    return rows_of(reader)


def test_json_has_the_types_of_the_given_columns(lab: Lab, topic: str) -> None:
    rows = plain(lab, topic, b'{"id": 1, "item": "tea"}', None, b"{}", valueFormat="json", valueSchema=DDL)
    assert [row["value"] for row in rows] == [{"id": 1, "item": "tea"}, None, {"id": None, "item": None}]
    assert [row["key"] for row in rows] == [b"k0", b"k1", b"k2"]


def test_texts_are_strings_and_keys_have_a_format_too(lab: Lab, topic: str) -> None:
    (row,) = plain(lab, topic, "tée".encode(), valueFormat="text", keyFormat="text")
    assert (row["key"], row["value"]) == ("k0", "tée")


def test_a_bad_record_fails_with_its_place_and_the_remedy(lab: Lab, topic: str) -> None:
    with pytest.raises(BadRecord) as caught:
        plain(lab, topic, b'{"id": 1}', b'{"id": "x"}', valueFormat="json", valueSchema=DDL)
    assert f"the record at offset 1 of partition {topic}-0 cannot be read: its value is bad: field 'id'" in str(
        caught.value
    )
    assert "Set 'onBadRecord' to null" in str(caught.value)


def test_bad_records_are_null_with_the_reason_and_the_bytes(lab: Lab, topic: str) -> None:
    rows = plain(lab, topic, b'{"id": 1}', b"\xff", None, valueFormat="json", valueSchema=DDL, onBadRecord="null")
    assert [row["value"] for row in rows] == [{"id": 1, "item": None}, None, None]
    assert rows[0]["badRecord"] is rows[2]["badRecord"] is None
    bad = rows[1]["badRecord"]
    assert (bad["key"], bad["value"]) == (b"k1", b"\xff")
    assert bad["reason"].startswith("its value is bad: it is not JSON: ")


def test_a_record_may_be_bad_twice(lab: Lab, topic: str) -> None:
    (row,) = plain(
        lab,
        topic,
        b"\xff",
        valueFormat="text",
        keyFormat="json",
        keySchema="BIGINT",
        onBadRecord="null",
    )
    assert row["key"] is row["value"] is None
    assert "its key is bad: it is not JSON" in row["badRecord"]["reason"]
    assert "; its value is bad: it is not a UTF-8 text" in row["badRecord"]["reason"]


def test_dead_letters_have_bytes_headers_and_origin(lab: Lab, topic: str) -> None:
    lab.create(topic)
    dead = lab.create(f"{topic}-dead")
    headers = (("tag", b"x"), ("__dlq.errors.topic", b"earlier"))
    lab.fill(
        topic,
        [
            Outgoing(key=b"a", value=b"1"),
            Outgoing(key=b"b", value=b"?", headers=headers),
            Outgoing(key=b"c", value=b"3"),
        ],
    )
    options = lab.options(
        topic, valueFormat="json", valueSchema="INT", onBadRecord="deadletter", deadLetterTopic=dead
    )
    source = lab.source(options)
    reader: Any = source.reader(source.schema())
    assert [(row["offset"], row["value"]) for row in rows_of(reader)] == [(0, 1), (2, 3)]
    (letter,) = lab.client.consume_from_start(dead, 1)
    assert (letter.key, letter.value) == (b"b", b"?")
    found = dict(letter.headers)
    message = found.pop("__dlq.errors.message")
    assert message.startswith(b"its value is bad: it is not JSON")
    assert found == {
        "tag": b"x",
        "__dlq.errors.topic": topic.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
    }


# -- with a registry


def test_records_of_confluents_json_serializer_are_structs(typed: TypedLab) -> None:
    typed.produce(*typed.encode_json(ORDERS), None)
    schema = typed.lab.source(typed.options(**JSON)).schema()
    assert schema["value"].dataType.simpleString() == "struct<id:bigint,item:string>"
    assert schema["value"].dataType["id"].nullable is False
    assert typed.values(**JSON) == [*ORDERS, None]


def test_every_record_is_read_with_the_readers_schema_from_the_first_version_to_the_last(typed: TypedLab) -> None:
    newer = json_schema(id="integer", item="string", price="number")
    typed.registry.set_compatibility(f"{typed.topic}-value", "NONE")
    old, new = typed.encode_json(ORDERS[:2]), typed.encode_json([{"id": 9, "item": "x", "price": 2}], newer)
    typed.produce(old[0], new[0], old[1])
    assert typed.values(**JSON) == [
        {**ORDERS[0], "price": None},
        {"id": 9, "item": "x", "price": 2.0},
        {**ORDERS[1], "price": None},
    ]
    assert typed.values(valueSchemaVersion="1", **JSON) == [ORDERS[0], {"id": 9, "item": "x"}, ORDERS[1]]


def test_unknown_ids_other_formats_and_damaged_records_are_bad(typed: TypedLab) -> None:
    good = typed.encode_json(ORDERS[:1])[0]
    other = typed.registry.register_schema(f"{typed.topic}-other", _schema('"string"', "AVRO"))
    bad = [
        (b"\0\0\0\xff\xff{}", "the registry has no schema with the id 65535"),
        (b"\0" + other.to_bytes(4, "big") + b"{}", f"its schema {other} is of type AVRO, not JSON"),
        (b"\1" + good[1:], "it begins with the byte 1 instead of 0, so it has no schema id"),
        (b"\0\0", "it has 2 bytes, too few for a schema id"),
        (b"", "it has 0 bytes, too few for a schema id"),
        (good[:-1], "it is not JSON: "),
        (good[:5] + b'{"item": "x"}', "field 'id': is missing or null, but required"),
    ]
    typed.produce(good, *(payload for payload, _ in bad), good)
    rows = typed.rows(onBadRecord="null", **JSON)
    assert [row["value"] for row in rows] == [ORDERS[0], *[None] * len(bad), ORDERS[0]]
    for row, (payload, reason) in zip(rows[1:-1], bad, strict=True):
        assert row["badRecord"]["value"] == payload
        assert row["badRecord"]["reason"].startswith(f"its value is bad: {reason}")


def _schema(text: str, kind: str) -> Any:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, kind)


def test_columns_that_are_not_read_are_not_decoded(typed: TypedLab) -> None:
    typed.register(ORDER_JSON, "JSON")
    typed.produce(b"no schema id")
    assert typed.rows(StructType().add("offset", LongType()), **JSON) == [{"offset": 0}]


def test_a_schema_of_ones_own_may_leave_out_columns_but_not_change_them(typed: TypedLab) -> None:
    typed.produce(*typed.encode_json(ORDERS[:1]))
    whole = typed.lab.source(typed.options(**JSON)).schema()
    assert typed.rows(StructType([whole["value"]]), **JSON) == [{"value": ORDERS[0]}]
    nullable = StructType().add("value", StructType().add("id", "long").add("item", "string"))
    assert typed.rows(nullable, **JSON) == [{"value": ORDERS[0]}]
    wrong = StructType().add("value", StructType().add("id", "string"))
    with pytest.raises(BadSchema, match=r"no column value of type struct<id:string>.*value struct<id:bigint"):
        typed.rows(wrong, **JSON)


def test_several_topics_must_have_one_type(typed: TypedLab) -> None:
    lab, other = typed.lab, typed.other("b")
    typed.register(ORDER_JSON, "JSON")
    other.register(ORDER_JSON, "JSON")
    typed.produce(*typed.encode_json(ORDERS[:1]))
    other.produce(*other.encode_json(ORDERS[1:2]))
    both = lab.options(f"{typed.topic},{other.topic}", schemaRegistry=typed.url, **JSON)
    assert sorted(row["value"]["id"] for row in rows_of(typed.reader_of(both))) == [0, 1]
    pattern = lab.options(subscribePattern=f"^{typed.topic}(-b)?$", schemaRegistry=typed.url, **JSON)
    assert sorted(row["value"]["id"] for row in rows_of(typed.reader_of(pattern))) == [0, 1]
    typed.registry.set_compatibility(f"{other.topic}-value", "NONE")
    other.register(json_schema(id="string"), "JSON")
    with pytest.raises(BadOption, match="have different types in the registry; read one topic, or set"):
        typed.reader_of(both)
    one = both | {"valueSubject": f"{typed.topic}-value"}
    assert sorted(row["value"]["id"] for row in rows_of(typed.reader_of(one))) == [0, 1]


def test_a_subject_that_does_not_exist_or_has_another_format_is_reported(typed: TypedLab) -> None:
    with pytest.raises(BadOption, match=f"has no schema of subject '{typed.topic}-value': register it with"):
        typed.rows(**JSON)
    typed.register('"string"')
    with pytest.raises(BadOption, match="type AVRO, but 'valueFormat' is 'json-schema'; set it to avro"):
        typed.rows(**JSON)
    typed.registry.register_schema(f"{typed.topic}-odd", _schema(json.dumps({"type": "object"}), "JSON"))
    with pytest.raises(BadOption, match=r"declares no properties\. Set 'valueFormat' to binary"):
        typed.rows(valueSubject=f"{typed.topic}-odd", **JSON)
    with pytest.raises(BadOption, match="has no version 7 of subject"):
        typed.rows(valueSchemaVersion="7", **JSON)

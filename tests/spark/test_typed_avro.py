"""Avro keys and values, read without Spark: schema evolution in a query, bare payloads, a registry that is down."""

import io
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.serialization import MessageField

from penstock.spark.errors import BadOption
from penstock.spark.values.registry import RegistryUnavailable
from tests.brokers import BrokerProcess
from tests.clients.drivers import Outgoing
from tests.ports import free_port
from tests.registry.rest_client import record

from .lab import Lab, rows_of
from .typed_lab import ORDERS, TypedLab

AVRO = {"valueFormat": "avro"}
ORDER = record("id:long", "item:string")
NEWER = record("id:long", "item:string", 'tag:string="none"')
RENAMED = record("id:long", 'thing:string="?"')


def test_records_of_confluents_avro_serializer_are_structs(typed: TypedLab) -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
                {"name": "counts", "type": {"type": "map", "values": "int"}},
                {"name": "note", "type": ["null", "string"], "default": None},
            ],
        }
    )
    at = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
    row = {"id": 1, "at": at, "price": Decimal("2.50"), "tags": ["a"], "counts": {"b": 2}, "note": None}
    typed.produce(*typed.encode_avro([row], text), None)
    kind = typed.lab.source(typed.options(**AVRO)).schema()["value"].dataType.simpleString()
    assert kind == (
        "struct<id:bigint,at:timestamp,price:decimal(9,2),tags:array<string>,counts:map<string,int>,note:string>"
    )
    assert typed.values(**AVRO) == [row | {"counts": [("b", 2)]}, None]


def test_mixed_versions_are_resolved_to_the_readers_schema_in_their_order(typed: TypedLab, rng: Random) -> None:
    typed.registry.set_compatibility(f"{typed.topic}-value", "NONE")
    versions = [ORDER, RENAMED, NEWER]
    fields = [("item",), ("thing",), ("item", "tag")]
    sent, expected = [], []
    for number in range(300):
        version = rng.randrange(4)
        if version == 3:
            sent.append(None)
            expected.append(None)
            continue
        row = {"id": number, **dict.fromkeys(fields[version], f"text {number}")}
        sent += typed.encode_avro([row], versions[version])
        has_item = version != 1
        expected.append(row if version == 2 else (row | {"tag": "none"} if has_item else None))
    subject = f"{typed.topic}-reader"
    typed.registry.register_schema(subject, Schema(NEWER, "AVRO"))
    typed.produce(*sent)
    rows = typed.rows(onBadRecord="null", valueSubject=subject, **AVRO)
    assert [row["value"] for row in rows] == expected
    for row, value in zip(rows, sent, strict=True):  # version 2 has no field `item`, which has no default
        is_bad = value is not None and row["value"] is None
        assert (row["badRecord"] is not None) == is_bad
        if is_bad:
            assert "cannot be read with the schema of the query" in row["badRecord"]["reason"]


def test_the_version_of_the_reader_can_be_chosen_and_keys_have_schemas_too(typed: TypedLab) -> None:
    values = [*typed.encode_avro(ORDERS[:1], ORDER), *typed.encode_avro([ORDERS[1] | {"tag": "x"}], NEWER)]
    keys = typed.encode_avro([7, 8], '"int"', MessageField.KEY)
    typed.lab.fill(typed.topic, [Outgoing(key=k, value=v) for k, v in zip(keys, values, strict=True)])
    assert typed.values(valueSchemaVersion="1", **AVRO) == ORDERS[:2]
    assert typed.values(valueSchema=RENAMED, **AVRO) == [{"id": 0, "thing": "?"}, {"id": 1, "thing": "?"}]
    assert [row["key"] for row in typed.rows(keyFormat="avro")] == [7, 8]


def test_schemas_with_references_are_read(typed: TypedLab) -> None:
    item = f"{typed.topic}-item"
    typed.registry.register_schema(item, Schema(record("sku:string", name="Item"), "AVRO"))
    order = Schema(record("id:long", "item:Item"), "AVRO", [SchemaReference("Item", item, 1)])
    number = typed.registry.register_schema(f"{typed.topic}-value", order)
    typed.produce(b"\0" + number.to_bytes(4, "big") + b"\x02\x06tea")
    assert typed.values(**AVRO) == [{"id": 1, "item": {"sku": "tea"}}]


def test_payloads_without_schema_ids_are_read_without_a_registry(lab: Lab, topic: str) -> None:
    lab.create(topic)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(ORDER)), ORDERS[3])
    lab.fill(topic, [Outgoing(value=out.getvalue())])
    source = lab.source(lab.options(topic, valueSchema=ORDER, **AVRO))
    assert [row["value"] for row in rows_of(source.reader(source.schema()))] == [ORDERS[3]]
    with pytest.raises(BadOption, match=r"option 'valueSchema': .*Set 'valueFormat' to binary"):
        lab.source(lab.options(topic, valueSchema='{"type": "recrod"}', **AVRO)).schema()


def test_a_truncated_payload_is_bad_and_its_neighbours_are_not(typed: TypedLab) -> None:
    first, second, third = typed.encode_avro(ORDERS[:3], ORDER)
    typed.produce(first, second[:-1], third)
    rows = typed.rows(onBadRecord="null", **AVRO)
    assert [row["value"] for row in rows] == [ORDERS[0], None, ORDERS[2]]
    assert rows[1]["badRecord"]["reason"].startswith("its value is bad: item, byte")


def test_a_registry_that_is_down_fails_the_task_and_makes_no_record_bad(typed: TypedLab) -> None:
    typed.produce(*typed.encode_avro(ORDERS, ORDER))
    nowhere = f"http://ada:secret@127.0.0.1:{free_port()}/registry"
    options = typed.lab.options(
        typed.topic,
        schemaRegistry=nowhere,
        valueSchema=ORDER,
        onBadRecord="null",
        kafkaConsumer__pollTimeoutMs=300,
        **AVRO,
    )
    with pytest.raises(RegistryUnavailable) as caught:
        rows_of(typed.reader_of(options))
    assert "cannot be asked for schema" in str(caught.value)
    assert "check the option 'schemaRegistry'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_task_waits_for_a_registry_that_restarts(typed: TypedLab, own_broker: Callable[..., BrokerProcess]) -> None:
    other = own_broker()
    url = f"http://{other.http}/registry"
    with SchemaRegistryClient({"url": url}) as registry:
        schema_id = registry.register_schema("orders-value", Schema(ORDER, "AVRO"))
    other.stop()
    typed.produce(b"\0" + schema_id.to_bytes(4, "big") + b"\x02\x06tea")
    options = typed.lab.options(typed.topic, schemaRegistry=url, valueSchema=ORDER, **AVRO)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(lambda: rows_of(typed.reader_of(options)))
        other.start()
        assert [row["value"] for row in found.result()] == [{"id": 1, "item": "tea"}]
    other.stop()
    assert [row["value"] for row in rows_of(typed.reader_of(options))] == [{"id": 1, "item": "tea"}]  # remembered


def test_ids_are_those_of_the_subjects_context(typed: TypedLab) -> None:
    for number, text in enumerate(('"string"', '"bytes"', ORDER)):  # ids start at 1 in each context
        subject = f":.{typed.topic}:orders-{number}"
        schema_id = typed.registry.register_schema(subject, Schema(text, "AVRO"))
    assert schema_id == 3
    typed.produce(b"\0\0\0\0\3\x02\x06tea")
    assert typed.values(valueSubject=subject, **AVRO) == [{"id": 1, "item": "tea"}]


def test_the_next_url_is_asked_if_one_does_not_answer(typed: TypedLab) -> None:
    typed.produce(*typed.encode_avro(ORDERS[:1], ORDER))
    urls = f"http://127.0.0.1:{free_port()},{typed.url}"
    options = typed.lab.options(typed.topic, schemaRegistry=urls, **AVRO)
    assert [row["value"] for row in rows_of(typed.reader_of(options))] == ORDERS[:1]

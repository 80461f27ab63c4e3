"""Typed keys and values, written by tasks without Spark: what Confluent's deserializers read, and what is refused."""

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.errors import BadOption, BadSchema
from penstock.spark.values.encoding import RowDoesNotFit
from penstock.spark.writer import StreamWriter, batch_writer, stream_writer
from tests.clients.drivers import Message
from tests.registry.rest_client import record
from tests.registry.test_confluent_clients import order_type

from .typed_lab import ORDERS, TypedLab, json_schema
from .write_lab import in_task

AVRO = {"valueFormat": "avro"}
JSON = {"valueFormat": "json-schema"}
ORDER = pa.schema([("id", pa.int64()), ("item", pa.string())])


def write(typed: TypedLab, rows: Sequence[dict[str, Any]], schema: pa.Schema = ORDER, **options: str) -> None:
    """Writes rows as Spark does: the driver's writer is sent to a task."""
    write_with(typed.write_options(**options), rows, schema)


def write_with(options: dict[str, str], rows: Sequence[dict[str, Any]], schema: pa.Schema = ORDER) -> None:
    driver = batch_writer(options, spark_schema(schema), overwrite=False)
    with in_task(driver.query):
        sent = pickle.loads(pickle.dumps(driver)).write(iter([pa.RecordBatch.from_pylist(list(rows), schema)]))
    driver.commit([sent])


def spark_schema(schema: pa.Schema) -> StructType:
    found = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    assert isinstance(found, StructType)
    return found


def messages(typed: TypedLab, count: int) -> list[Message]:
    return typed.lab.client.consume_from_start(typed.topic, count)


def read_back(typed: TypedLab, deserialize: Any, count: int) -> list[Any]:
    context = SerializationContext(typed.topic, MessageField.VALUE)
    return [deserialize(message.value, context) for message in messages(typed, count)]


def latest(typed: TypedLab, part: str = "value") -> str:
    text = typed.registry.get_latest_version(f"{typed.topic}-{part}").schema.schema_str
    assert text is not None
    return text


# -- formats


def test_confluents_avro_deserializer_reads_all_types(typed: TypedLab) -> None:
    schema = pa.schema(
        [
            *ORDER,
            ("at", pa.timestamp("us", tz="UTC")),
            ("price", pa.decimal128(9, 2)),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int32())),
            ("customer", pa.struct([("name", pa.string()), ("raw", pa.binary())])),
            ("note", pa.string()),
        ]
    )
    row = {
        **ORDERS[1],
        "at": datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
        "price": Decimal("2.50"),
        "tags": ["a", None],
        "counts": {"b": 2},
        "customer": {"name": "Ada", "raw": b"\xff"},
        "note": None,
    }
    write(typed, [row | {"counts": [("b", 2)]}], schema, **AVRO)
    assert read_back(typed, AvroDeserializer(typed.registry), 1) == [row]
    assert typed.values(**AVRO) == [row | {"counts": [("b", 2)]}]


def test_confluents_json_deserializer_validates_what_is_written(typed: TypedLab) -> None:
    schema = pa.schema([*ORDER, ("tags", pa.list_(pa.string())), ("counts", pa.map_(pa.string(), pa.int32()))])
    rows = [{"id": 1, "item": None, "tags": ["a", None], "counts": [("b", 2), ("c", None)]}]
    write(typed, rows, schema, **JSON)
    read = JSONDeserializer(None, schema_registry_client=typed.registry)
    assert read_back(typed, read, 1) == [{"id": 1, "tags": ["a", None], "counts": {"b": 2, "c": None}}]
    assert typed.values(**JSON) == rows


def test_confluents_protobuf_deserializer_reads_what_is_written(typed: TypedLab) -> None:
    order = order_type(typed.topic.replace("-", "_"))
    nested = pa.schema([("id", pa.int64()), ("item", pa.struct([("sku", pa.string())]))])
    write(typed, [{"id": 7, "item": {"sku": "tea"}}, {"id": 8, "item": None}], nested, valueFormat="protobuf")
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, typed.registry)
    assert read_back(typed, read, 2) == [order(id=7, item={"sku": "tea"}), order(id=8)]
    assert typed.values(valueFormat="protobuf") == [{"id": 7, "item": {"sku": "tea"}}, {"id": 8, "item": None}]


def test_json_and_texts_need_no_registry(typed: TypedLab) -> None:
    options = {"topic": typed.topic, **typed.lab.options(valueFormat="json", keyFormat="text")}
    write_with(options, [{"key": "k", **ORDERS[0]}], pa.schema([("key", pa.string()), *ORDER]))
    (message,) = messages(typed, 1)
    assert (message.key, orjson.loads(message.value or b"")) == (b"k", ORDERS[0])


@pytest.mark.parametrize(
    ("kind", "format", "reason"),
    [
        (pa.int64(), "text", "the values do not fit their format, which is text: the column is int64, but string"),
        (
            pa.map_(pa.int32(), pa.string()),
            "json",
            "the values cannot be written as json: The column has the type map",
        ),
        (pa.list_(pa.list_(pa.string())), "protobuf", "the values cannot be written as protobuf"),
        (pa.map_(pa.int32(), pa.string()), "avro", "the values cannot be written as avro"),
    ],
)
def test_types_that_a_format_does_not_have_are_refused(
    typed: TypedLab, kind: pa.DataType, format: str, reason: str
) -> None:
    registry = {"schemaRegistry": typed.url} if format in ("avro", "protobuf") else {}
    options = {"topic": typed.topic, **typed.lab.options(valueFormat=format, **registry)}
    with pytest.raises(BadSchema, match=reason):
        write_with(options, [], pa.schema([("value", kind)]))


def test_avro_without_a_registry_has_no_header(typed: TypedLab) -> None:
    text = record("id:long", "item:string")
    write_with({"topic": typed.topic, **typed.lab.options(valueSchema=text, **AVRO)}, ORDERS[:1])
    (message,) = messages(typed, 1)
    assert message.value == b"\x00\x0citem 0"


# -- which columns, which schema


def test_a_column_value_is_the_whole_value_and_null_is_a_tombstone(typed: TypedLab) -> None:
    schema = pa.schema([("key", pa.int32()), ("value", pa.struct(list(ORDER)))])
    rows = [{"key": 1, "value": ORDERS[0]}, {"key": 2, "value": None}]
    write(typed, rows, schema, keyFormat="avro", **AVRO)
    assert latest(typed, "key") == '"int"'
    assert [message.value is None for message in messages(typed, 2)] == [False, True]
    assert [(row["key"], row["value"]) for row in typed.rows(keyFormat="avro", **AVRO)] == [
        (1, ORDERS[0]),
        (2, None),
    ]
    with pytest.raises(BadSchema, match=r"column 'id' would not be written.*make it a field: struct"):
        write(typed, [], pa.schema([*schema, ("id", pa.int64())]), **AVRO)
    with pytest.raises(BadSchema, match="'keyFormat' is set, but there is no column 'key'"):
        write(typed, [], ORDER, keyFormat="avro", **AVRO)


def test_a_new_column_makes_a_new_version_with_the_name_of_the_record(typed: TypedLab) -> None:
    typed.register(record("id:long", 'item:string=""', name="shop.Order"))
    write(typed, [{"id": 1, "item": "tea", "price": 2.5}], pa.schema([*ORDER, ("price", pa.float64())]), **AVRO)
    assert typed.registry.get_versions(f"{typed.topic}-value") == [1, 2]
    assert fastavro.parse_schema(orjson.loads(latest(typed)))["name"] == "shop.Order"
    assert typed.values(**AVRO) == [{"id": 1, "item": "tea", "price": 2.5}]
    write(typed, [{"id": 2, "item": "x", "price": None}], pa.schema([*ORDER, ("price", pa.float64())]), **AVRO)
    assert typed.registry.get_versions(f"{typed.topic}-value") == [1, 2]


def test_an_incompatible_schema_is_refused_with_the_reasons(typed: TypedLab) -> None:
    typed.register(record("id:long"))
    with pytest.raises(BadSchema, match=rf"cannot be registered as '{typed.topic}-value'.*MISSING_UNION_BRANCH"):
        write(typed, [], pa.schema([("id", pa.string())]), **AVRO)


def test_the_latest_schema_can_be_used_if_the_columns_fit(typed: TypedLab) -> None:
    optional = {"name": "n", "type": ["null", "int"], "default": None}
    order = orjson.loads(record("id:long", "item:string"))
    typed.register(orjson.dumps(order | {"fields": [*order["fields"], optional]}).decode())
    given = {"useLatestSchema": "true", **AVRO}
    write(typed, [{"item": "tea", "id": 1}], pa.schema([("item", pa.string()), ("id", pa.int32())]), **given)
    assert typed.values(**AVRO) == [{"id": 1, "item": "tea", "n": None}]
    cases = [
        (pa.schema([*ORDER, ("extra", pa.int32())]), "column 'extra' is not in the schema, which has id, item, n"),
        (pa.schema([("id", pa.int64())]), "column 'item' is missing, but the schema requires it"),
        (pa.schema([("id", pa.string()), ("item", pa.string())]), "column 'id' is string, but int64 in the schema"),
    ]
    for schema, reason in cases:
        with pytest.raises(BadSchema, match=reason):
            write(typed, [], schema, **given)
    with pytest.raises(RowDoesNotFit, match="the value of a row does not fit its schema: Row 1: item"):
        write(typed, [ORDERS[0], {"id": 1, "item": None}], **given)
    assert len(typed.values(**AVRO)) == 1


def test_without_registration_the_registry_must_have_the_schema(typed: TypedLab) -> None:
    with pytest.raises(BadOption, match=r"does not have the schema of the values, and 'registerSchemas' is false"):
        write(typed, [], registerSchemas="false", **JSON)
    write(typed, ORDERS, **JSON)
    write(typed, ORDERS, registerSchemas="false", **JSON)
    assert typed.values(**JSON) == [*ORDERS, *ORDERS]


def test_an_explicit_schema_is_registered(typed: TypedLab) -> None:
    text = json_schema(id="integer", item="string")
    write(typed, ORDERS, valueSchema=text, **JSON)
    assert orjson.loads(latest(typed)) == orjson.loads(text)


def test_rows_that_name_their_topics_need_a_subject(typed: TypedLab) -> None:
    options = typed.lab.options(schemaRegistry=typed.url, **AVRO)
    schema = pa.schema([("topic", pa.string()), *ORDER])
    with pytest.raises(BadOption, match="option 'valueSubject' is missing: rows name their topics"):
        write_with(options, [], schema)
    subject = f"{typed.topic}-value"
    write_with(options | {"valueSubject": subject}, [{"topic": typed.topic, **ORDERS[0]}], schema)
    assert typed.values(**AVRO) == ORDERS[:1]


def test_only_the_driver_asks_the_registry_when_it_sends_the_sink_to_tasks(typed: TypedLab) -> None:
    subject = f"{typed.topic}-value"
    sink = stream_writer(typed.write_options(**AVRO), spark_schema(ORDER), overwrite=False)
    assert subject not in typed.registry.get_subjects()  # Spark makes a sink for every commit, too
    sent = pickle.dumps(sink)
    assert typed.registry.get_versions(subject) == [1]
    typed.registry.delete_subject(subject)
    task = pickle.loads(sent)
    assert isinstance(task, StreamWriter)
    with in_task("query-of-values"):
        written = task.write(iter([pa.RecordBatch.from_pylist(ORDERS, ORDER)]))
    sink.commit([written], 0)
    assert subject not in typed.registry.get_subjects()
    assert len(messages(typed, len(ORDERS))) == len(ORDERS)

"""The options of typed keys and values, types in DDL syntax, schema ids in payloads: without brokers and Spark."""

from random import Random

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.spark.errors import BadOption
from penstock.spark.read_options import ReadOptions
from penstock.spark.values.column_types import can_hold, misfit, nullable
from penstock.spark.values.ddl import parse_ddl
from penstock.spark.values.framing import HEADER, find_schema_ids
from penstock.spark.values.options import OnBadRecord, ValueFormat
from penstock.spark.write_options import WriteOptions

URL = "http://ada:secret@localhost:9324/registry"
AVRO = {"valueFormat": "avro", "schemaRegistry": URL}


def reading(**options: str) -> ReadOptions:
    return ReadOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", **options})


def writing(**options: str) -> WriteOptions:
    return WriteOptions.parse({"kafka.bootstrap.servers": "localhost:9092", "topic": "orders", **options})


def test_formats_are_parsed() -> None:
    options = reading(**AVRO, keyFormat="TEXT", valueSchemaVersion="3", onBadRecord="null")
    assert [part.format for part in options.typed.parts] == [ValueFormat.TEXT, ValueFormat.AVRO]
    assert options.typed.value.version == 3
    assert options.bad_records.policy is OnBadRecord.NULL
    assert reading(**AVRO, valueSchemaVersion="latest").typed.value.version is None
    assert reading().typed.parts == ()


def test_users_and_passwords_are_not_shown() -> None:
    options = reading(
        valueFormat="avro", schemaRegistry=URL, schemaRegistryUser="bob", schemaRegistryPassword="hunter2"
    )
    assert str(options.typed.registry) == "http://localhost:9324/registry"
    for secret in ("secret", "hunter2", "bob", "ada"):
        assert secret not in repr(options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"valueFromat": "avro"}, "there is no option 'valueFromat' for reading; did you mean 'valueFormat'"),
        ({"valueFormat": "arvo"}, "option 'valueFormat' is 'arvo'; it can be binary"),
        ({"valueFormat": "json"}, "option 'valueSchema' is missing: 'valueFormat' is 'json', and needs the types"),
        ({"keyFormat": "json"}, "option 'keySchema' is missing"),
        ({"valueFormat": "protobuf"}, "'protobuf', which needs the option 'schemaRegistry'"),
        ({"valueFormat": "avro"}, "set 'schemaRegistry' to the URL of the registry .* or 'valueSchema' to the text"),
        ({"schemaRegistry": URL}, "neither 'valueFormat' nor 'keyFormat' uses a registry"),
        ({"schemaRegistryUser": "x"}, "option 'schemaRegistryUser' needs the option 'schemaRegistry'"),
        ({**AVRO, "schemaRegistryPassword": "x"}, "'schemaRegistryPassword' needs the option 'schemaRegistryUser'"),
        ({**AVRO, "schemaRegistry": "ftp://a:secret@x"}, "option 'schemaRegistry': 'x' is not the URL"),
        ({"valueFormat": "text", "valueSubject": "x"}, "'valueSubject' has no effect while 'valueFormat' is 'text'"),
        (
            {**AVRO, "valueMessage": "x"},
            "'valueMessage' has no effect while 'valueFormat' is 'avro'; set that to proto",
        ),
        ({"valueSchema": "id INT"}, "'valueSchema' has no effect while 'valueFormat' is 'binary'"),
        ({**AVRO, "valueSchemaVersion": "0"}, "option 'valueSchemaVersion' is 0; it must be from 1"),
        ({**AVRO, "valueSchema": '"int"', "valueSchemaVersion": "1"}, "both name a schema; set one"),
        ({"onBadRecord": "null"}, "option 'onBadRecord' has no effect"),
        ({**AVRO, "onBadRecord": "deadletter"}, "must be 'deadletter' if 'deadLetterTopic' names a topic, and only"),
        ({**AVRO, "deadLetterTopic": "dead"}, "must be 'deadletter' if 'deadLetterTopic' names a topic, and only"),
        (
            {**AVRO, "onBadRecord": "deadletter", "deadLetterTopic": "orders"},
            "names 'orders', which the query reads",
        ),
        ({**AVRO, "useLatestSchema": "true"}, "there is no option 'useLatestSchema' for reading"),
    ],
)
def test_mistakes_in_options_for_reading_are_explained(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason) as caught:
        reading(**options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {**AVRO, "useLatestSchema": "true", "valueSchema": '"int"'},
            "'useLatestSchema' and 'valueSchema' both name",
        ),
        ({**AVRO, "useLatestSchema": "true", "valueSchemaVersion": "1"}, "and 'valueSchemaVersion' both name"),
        ({"registerSchemas": "false"}, "option 'registerSchemas' needs the option 'schemaRegistry'"),
        ({**AVRO, "onBadRecord": "null"}, "there is no option 'onBadRecord' for writing"),
    ],
)
def test_mistakes_in_options_for_writing_are_explained(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        writing(**options)


# -- types in DDL syntax


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("id BIGINT, item STRING", "struct<id:bigint,item:string>"),
        ("id: long not null comment 'a, b', `a ``b` array<int>", "struct<id:bigint,a `b:array<int>>"),
        (
            "a struct<b: map<string, array<short>>, c byte>",
            "struct<a:struct<b:map<string,array<smallint>>,c:tinyint>>",
        ),
        (
            "a timestamp, b timestamp_ntz, c date, d binary, e boolean, f real",
            "struct<a:timestamp,b:timestamp_ntz,c:date,d:binary,e:boolean,f:float>",
        ),
        (
            "price decimal, tax decimal(5), rate decimal(5, 2)",
            "struct<price:decimal(10,0),tax:decimal(5,0),rate:decimal(5,2)>",
        ),
        ("MAP<STRING, DOUBLE>", "map<string,double>"),
        ("bigint", "bigint"),
        ("array bigint", "struct<array:bigint>"),
    ],
)
def test_types_are_parsed_like_sparks(text: str, shown: str) -> None:
    assert parse_ddl(text).simpleString() == shown


def test_not_null_is_kept() -> None:
    found = parse_ddl("id BIGINT NOT NULL, item STRING")
    assert isinstance(found, StructType)
    assert [field.nullable for field in found] == [False, True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id", "'id' is not a type; possible are bigint"),
        ("id BIGNT", "'bignt' is not a type"),
        ("id BIGINT,", "more text is missing at the end"),
        ("id BIGINT item STRING", "',' is missing before 'item'"),
        ("a STRUCT<b INT", "',' is missing at the end"),
        ("a INT, A INT", "column 'A' is defined twice"),
        ("a DECIMAL(39)", "must have 1 to 38 digits"),
        ("a DECIMAL(2, 3)", "must have 1 to 38 digits"),
        ("a INT; b INT", "'; b INT' is not expected"),
        ("", "more text is missing"),
        ("ARRAY<INT> x", "the end is missing before 'x'"),
        ("array<" * 500, "nested more than 100 deep"),
    ],
)
def test_what_is_wrong_with_a_type_is_said(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_ddl(text)


# -- schema ids


def test_rows_are_grouped_by_schema_id(rng: Random) -> None:
    payloads: list[bytes | None] = []
    expected: dict[int, list[int]] = {}
    bad = []
    for row in range(1000):
        kind = rng.randrange(5)
        if kind == 0:
            payloads.append(None)
        elif kind == 1:
            payloads.append(rng.choice([b"", b"\0\0\0\0", b"\1\0\0\0\1rest", b"\xff" * 9]))
            bad.append(row)
        else:
            schema_id = rng.choice([1, 2, 300, 2**32 - 1])
            payloads.append(HEADER.pack(0, schema_id) + rng.randbytes(rng.randrange(3)))
            expected.setdefault(schema_id, []).append(row)
    whole = pa.array([b"first", *payloads], pa.binary())
    found = find_schema_ids(whole.slice(1))
    assert {schema_id: rows.tolist() for schema_id, rows in found.rows.items()} == expected
    assert list(found.bad) == bad


def test_columns_without_payloads_have_no_schema_ids() -> None:
    for empty in (pa.array([], pa.binary()), pa.array([None, None], pa.binary()), pa.nulls(3, pa.binary())):
        found = find_schema_ids(empty)
        assert not [*found.rows]
        assert not found.bad


# -- column types


STRICT = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("tags", pa.list_(pa.string()))])


def test_a_type_holds_another_if_only_more_may_be_null() -> None:
    assert can_hold(nullable(STRICT), STRICT)
    assert not can_hold(STRICT, nullable(STRICT))
    assert not can_hold(pa.struct([("ID", pa.int64())]), pa.struct([("id", pa.int64())]))
    assert can_hold(pa.list_(pa.field("element", pa.int32())), pa.list_(pa.field("item", pa.int32())))
    assert not can_hold(pa.list_(pa.int32()), pa.list_(pa.int64()))
    assert can_hold(pa.map_(pa.string(), STRICT), pa.map_(pa.string(), STRICT))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (STRICT, None),
        (pa.struct([("id", pa.int16())]), None),
        (pa.struct([("tags", pa.list_(pa.string())), ("id", pa.int64())]), None),
        (pa.struct([("tags", pa.list_(pa.string()))]), "column 'id' is missing, but the schema requires it"),
        (pa.struct([("id", pa.int64()), ("x", pa.int64())]), "column 'x' is not in the schema, which has id, tags"),
        (pa.struct([("id", pa.string())]), "column 'id' is string, but int64 in the schema"),
        (pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.int8()))]), "column 'tags.element' is int8, but string"),
        (pa.int64(), "the column is int64, but struct"),
    ],
)
def test_columns_that_do_not_fit_a_schema_are_named(found: pa.DataType, reason: str | None) -> None:
    said = misfit(found, STRICT)
    assert said is None if reason is None else said is not None and said.startswith(reason)


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.float64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), True),
        (pa.decimal128(9, 2), pa.decimal128(5, 2), False),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), False),
        (pa.timestamp("us", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC"), True),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), False),
        (pa.large_string(), pa.string(), True),
        (pa.string(), pa.binary(), False),
    ],
)
def test_basic_types_may_only_become_wider(found: pa.DataType, wanted: pa.DataType, fits: bool) -> None:
    assert (misfit(found, wanted) is None) == fits

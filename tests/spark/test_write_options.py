"""Options of the writer, and the errors of invalid ones."""

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.records.compression import Codec
from penstock.spark.errors import BadOption, BadSchema
from penstock.spark.write_options import Delivery, WriteOptions
from penstock.spark.write_schema import WriteColumns
from penstock.spark.writer import batch_writer, stream_writer

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def parse(**more: str) -> WriteOptions:
    """With `__` for a dot."""
    return WriteOptions.parse(GIVEN | {name.replace("__", "."): value for name, value in more.items()})


def refused(**more: str) -> str:
    with pytest.raises(BadOption) as caught:
        parse(**more)
    return str(caught.value)


def schema(**columns: DataType) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found = found.add(name, kind)
    return found


def test_the_default_is_exactly_once() -> None:
    options = parse()
    assert options.delivery is Delivery.EXACTLY_ONCE
    assert options.codec is Codec.NONE
    assert options.transaction_timeout_ms == 900_000
    assert options.record_bytes_max is None


def test_the_options_of_kafkas_producer_are_understood() -> None:
    options = parse(
        Delivery="at-least-once",
        kafka__compression__type="ZSTD",
        kafka__compression__zstd__level="7",
        kafka__compression__gzip__level="9",
        kafka__batch__size="65536",
        kafka__buffer__memory="1000000",
        kafka__linger__ms="20",
        kafka__acks="-1",
        kafka__enable__idempotence="true",
        kafka__max__request__size="2000000",
        kafka__max__in__flight__requests__per__connection="2",
        kafka__delivery__timeout__ms="30000",
        kafka__request__timeout__ms="7000",
        kafka__transaction__timeout__ms="60000",
        kafka__retries="5",
        checkpointLocation="/somewhere",
    )
    assert (options.delivery, options.codec, options.level) == (Delivery.AT_LEAST_ONCE, Codec.ZSTD, 7)
    assert (options.batch_bytes, options.record_bytes_max) == (65536, 2_000_000)
    assert (options.send.buffer_bytes_max, options.send.in_flight_max) == (1_000_000, 2)
    assert options.send.delivery_timeout_s == 30
    assert options.client.connection.request_timeout_s == 7
    assert options.transaction_timeout_ms == 60_000


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_can_be_chosen(codec: Codec) -> None:
    assert parse(kafka__compression__type=codec.name.lower()).codec is codec


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("kafka__acks", "1", "must be all"),
        ("kafka__acks", "0", "must be all"),
        ("kafka__enable__idempotence", "false", "must be true"),
        ("kafka__compression__type", "brotli", "none .*gzip .*snappy .*lz4 .*zstd"),
        ("kafka__compression__zstd__level", "23", "must be from -131072 to 22"),
        ("kafka__max__in__flight__requests__per__connection", "6", "1 to 5"),
        ("kafka__transaction__timeout__ms", "0", "must be from 1"),
        ("kafka__transactional__id", "mine", "each task has its own"),
        ("kafka__key__serializer", "x", "text, json, avro, protobuf or json-schema"),
        ("kafka__value__serializer", "x", "text, json, avro, protobuf or json-schema"),
        ("kafka__partitioner__class", "org.example.Mine", "a column 'partition'"),
        ("kafka__lingerms", "5", "did you mean 'kafka.linger.ms'"),
        ("delivery", "at-most-once", "exactly-once .*at-least-once"),
        ("topic", " ", "is empty"),
        ("subscribe", "orders", "for reading"),
    ],
)
def test_invalid_options_are_refused_by_name_with_the_valid_ones(option: str, value: str, said: str) -> None:
    name = option.replace("__", ".")
    with pytest.raises(BadOption, match=said) as caught:
        parse(**{option: value})
    assert name in str(caught.value)


def test_brokers_must_be_named() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers.*missing"):
        WriteOptions.parse({"topic": "orders"})


def test_the_columns_of_sparks_kafka_sink_are_found_and_others_left_out() -> None:
    columns = WriteColumns.of(
        schema(
            topic=StringType(),
            key=BinaryType(),
            value=StringType(),
            headers=HEADERS,
            partition=IntegerType(),
            timestamp=TimestampType(),
            offset=LongType(),
        ),
        None,
    )
    assert columns == WriteColumns(topic=True, key=True, partition=True, timestamp=True, headers=True)


def test_the_option_counts_more_than_the_column() -> None:
    columns = WriteColumns.of(schema(topic=LongType(), value=BinaryType()), "orders")
    assert columns == WriteColumns(topic=False, key=False, partition=False, timestamp=False, headers=False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": StringType()}, "column 'value' is missing; the columns are key"),
        ({"value": IntegerType()}, "'value' is int; it must be a string or binary"),
        ({"value": StringType(), "key": DoubleType()}, "'key' is double; it must be a string or binary"),
        ({"value": StringType(), "partition": LongType()}, "'partition' is bigint; it must be an int"),
        ({"value": StringType(), "timestamp": StringType()}, "'timestamp' is string; it must be a timestamp"),
        ({"value": StringType(), "headers": StringType()}, "must be array<struct<key:string,value:binary>>"),
    ],
)
def test_columns_of_other_types_are_refused(columns: dict[str, DataType], said: str) -> None:
    with pytest.raises(BadSchema, match=said):
        WriteColumns.of(schema(**columns), "orders")


def test_a_topic_must_be_named_by_the_option_or_by_every_row() -> None:
    with pytest.raises(BadSchema, match="set the option 'topic', or add a string column 'topic'"):
        WriteColumns.of(schema(value=StringType()), None)
    with pytest.raises(BadSchema, match="'topic' is binary; it must be a string"):
        WriteColumns.of(schema(value=StringType(), topic=BinaryType()), None)


def test_a_topic_is_not_overwritten_but_complete_mode_may_write_its_result_again() -> None:
    columns = schema(value=StringType())
    with pytest.raises(BadOption, match=r"use mode\('append'\)"):
        batch_writer(GIVEN, columns, overwrite=True)
    assert stream_writer(GIVEN, columns, overwrite=True) is not None


def test_a_writer_travels_to_its_tasks_and_stays_the_same_query() -> None:
    writer = batch_writer(GIVEN, schema(value=StringType()), overwrite=False)
    other = batch_writer(GIVEN, schema(value=StringType()), overwrite=False)
    assert pickle.loads(pickle.dumps(writer)).query == writer.query
    assert other.query != writer.query

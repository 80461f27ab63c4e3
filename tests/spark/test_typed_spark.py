"""Typed keys and values with real Spark: what it writes, Confluent's deserializers read, and the other way round."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.query_start import start_query
from tests.registry.rest_client import record

from .typed_lab import ORDERS, TypedLab, json_schema

JSON = {"valueFormat": "json-schema"}
AVRO = {"valueFormat": "avro"}
ORDER = record("id:long", "item:string")
NEWER = record("id:long", "item:string", 'tag:string="none"')


def save(rows: DataFrame, typed: TypedLab, **options: str) -> None:
    rows.write.format("penstock").options(**typed.write_options(**options)).mode("append").save()


def load(spark: SparkSession, typed: TypedLab, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(**typed.options(**options)).load()


def test_confluents_deserializer_reads_what_spark_wrote_as_json(spark: SparkSession, typed: TypedLab) -> None:
    rows = spark.createDataFrame([(row["id"], row["item"]) for row in ORDERS], "id BIGINT, item STRING")
    save(rows, typed, **JSON)
    read = JSONDeserializer(None, schema_registry_client=typed.registry)
    context = SerializationContext(typed.topic, MessageField.VALUE)
    found = [read(value, context) for value in typed.lab.values(typed.topic)]
    assert sorted(found, key=lambda row: row["id"]) == ORDERS
    assert load(spark, typed, **JSON).where("value.id = 3").selectExpr("value.item").collect() == [("item 3",)]
    save(rows.selectExpr("struct(id, item, 2.5D AS price) AS value"), typed, **JSON)
    latest = load(spark, typed, **JSON)
    assert latest.schema["value"].dataType.simpleString() == "struct<id:bigint,item:string,price:double>"
    assert latest.where("value.price = 2.5").count() == 5


@pytest.mark.parametrize("options", [{}, {"useLatestSchema": "true"}])
def test_sql_tables_have_typed_columns_that_stay_as_they_are(
    spark: SparkSession, typed: TypedLab, options: dict[str, str]
) -> None:
    typed.produce(*typed.encode_avro(ORDERS[:1], ORDER))
    name = typed.topic.replace("-", "_")
    shown = ", ".join(f"`{key}` '{text}'" for key, text in typed.write_options(**AVRO, **options).items())
    spark.sql(f"CREATE TABLE {name} USING penstock OPTIONS ({shown})")
    try:
        typed.register(NEWER)
        spark.sql(f"INSERT INTO {name} (value) SELECT named_struct('id', 7L, 'item', 'tea')")
        found = spark.sql(f"SELECT value.id, value.item, offset FROM {name} ORDER BY offset").collect()
        assert found == [(0, "item 0", 0), (7, "tea", 1)]
        assert len(spark.table(name).schema["value"].dataType.fields) == 2
        assert typed.registry.get_versions(f"{typed.topic}-value") == [1, 2]
    finally:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.slow
def test_a_stream_reads_and_writes_typed_values(
    spark: SparkSession, typed: TypedLab, checkpoint: str, tmp_path: Path
) -> None:
    typed.produce(*typed.encode_json(ORDERS))
    into = typed.other("loud")
    rows = spark.readStream.format("penstock").options(**typed.options(startingOffsets="earliest", **JSON)).load()
    loud = rows.selectExpr("CAST(value.id AS STRING) AS key", "value.id", "upper(value.item) AS item")
    writer = loud.writeStream.format("penstock").options(**into.write_options(**JSON), checkpointLocation=checkpoint)
    assert start_query(writer.trigger(availableNow=True).start).awaitTermination(300)
    found = load(spark, into, **JSON).selectExpr("cast(key AS string)", "value.item").orderBy("key").collect()
    assert found == [(str(row["id"]), str(row["item"]).upper()) for row in ORDERS]


@pytest.mark.slow
def test_an_incompatible_schema_fails_before_anything_is_written(spark: SparkSession, typed: TypedLab) -> None:
    typed.register(json_schema(id="integer"), "JSON")
    with pytest.raises(PySparkException, match=r"the schema of the values cannot be registered.*TYPE_CHANGED"):
        save(spark.sql("SELECT 'x' AS id"), typed, **JSON)
    assert typed.lab.values(typed.topic) == []


@pytest.mark.slow
def test_a_row_that_does_not_fit_fails_with_its_field(spark: SparkSession, typed: TypedLab) -> None:
    typed.register(json_schema(id="integer", item="string"), "JSON")
    rows: Any = spark.sql("SELECT * FROM VALUES (1L, 'x'), (NULL, 'y') AS t(id, item)")
    with pytest.raises(PySparkException, match=r"the value of a row does not fit its schema: .*'id' is null"):
        save(rows, typed, useLatestSchema="true", **JSON)
    assert typed.lab.values(typed.topic) == []


# -- streams


def run_once(rows: DataFrame, checkpoint: str, into: str) -> None:
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", into)
    assert start_query(writer.trigger(availableNow=True).start).awaitTermination(300)


@pytest.mark.slow
def test_a_restarted_stream_reads_with_the_latest_schema(
    spark: SparkSession, typed: TypedLab, checkpoint: str, tmp_path: Path
) -> None:
    into = str(tmp_path / "out")

    def rows(**options: str) -> DataFrame:
        given = typed.options(startingOffsets="earliest", **AVRO, **options)
        return spark.readStream.format("penstock").options(**given).load().select("value.*")

    typed.produce(*typed.encode_avro(ORDERS[:2], ORDER))
    first = rows()
    run_once(first, checkpoint, into)
    typed.produce(*typed.encode_avro([{"id": 7, "item": "new", "tag": "x"}], NEWER))
    run_once(first, checkpoint, into)  # planned before: the reader's schema has no tag
    typed.produce(*typed.encode_avro([{"id": 8, "item": "new", "tag": "y"}], NEWER))
    typed.produce(*typed.encode_avro([{"id": 9, "item": "old"}], ORDER))
    run_once(rows(), checkpoint, into)
    found = spark.read.option("mergeSchema", "true").parquet(into).select("id", "tag").orderBy("id").collect()
    assert found == [(0, None), (1, None), (7, None), (8, "y"), (9, "none")]


@pytest.mark.slow
def test_a_stream_whose_state_has_another_type_is_refused_until_the_version_is_set(
    spark: SparkSession, typed: TypedLab, checkpoint: str, tmp_path: Path
) -> None:
    into = str(tmp_path / "out")

    def distinct(**options: str) -> DataFrame:
        given = typed.options(startingOffsets="earliest", **AVRO, **options)
        return spark.readStream.format("penstock").options(**given).load().select("value").dropDuplicates(["value"])

    typed.produce(*typed.encode_avro(ORDERS[:2], ORDER))
    run_once(distinct(), checkpoint, into)
    typed.produce(*typed.encode_avro([ORDERS[0] | {"tag": "x"}, ORDERS[2] | {"tag": "x"}], NEWER))
    with pytest.raises(StreamingQueryException, match="STATE_STORE"):
        run_once(distinct(), checkpoint, into)
    run_once(distinct(valueSchemaVersion="1"), checkpoint, into)
    assert spark.read.parquet(into).selectExpr("value.id").orderBy("id").collect() == [(0,), (1,), (2,)]


@pytest.mark.slow
def test_dead_letters_are_written_before_the_rows_beside_them(
    spark: SparkSession, typed: TypedLab, checkpoint: str, tmp_path: Path
) -> None:
    dead = typed.lab.create(f"{typed.topic}-dead")
    typed.produce(*typed.encode_avro(ORDERS[:2], ORDER), b"bad", *typed.encode_avro(ORDERS[2:3], ORDER))
    given = typed.options(startingOffsets="earliest", onBadRecord="deadletter", deadLetterTopic=dead, **AVRO)
    rows = spark.readStream.format("penstock").options(**given).load().select("value.id", "offset")
    run_once(rows, checkpoint, str(tmp_path / "out"))
    assert spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect() == [(0, 0), (1, 1), (2, 3)]
    assert typed.lab.values(dead) == [b"bad"]


@pytest.mark.slow
def test_filters_are_pushed_down_beside_typed_values(spark: SparkSession, typed: TypedLab) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        typed.produce(b"bad", *typed.encode_avro(ORDERS, ORDER))
        rows = load(spark, typed, pushFilters="true", **AVRO).where(
            "offset > 1 AND value.id < 3 AND value IS NOT NULL"
        )
        assert rows.select("value.id").orderBy("id").collect() == [(1,), (2,)]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

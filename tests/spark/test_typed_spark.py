"""Typed keys and values with real Spark: what it writes, Confluent's deserializers read, and the other way round."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from .typed_lab import ORDERS, TypedLab, json_schema

JSON = {"valueFormat": "json-schema"}


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


def test_sql_tables_have_typed_columns_that_stay_as_they_are(spark: SparkSession, typed: TypedLab) -> None:
    typed.produce(*typed.encode_json(ORDERS[:1]))
    name = typed.topic.replace("-", "_")
    shown = ", ".join(f"`{key}` '{text}'" for key, text in typed.write_options(**JSON).items())
    spark.sql(f"CREATE TABLE {name} USING penstock OPTIONS ({shown})")
    try:
        typed.registry.set_compatibility(f"{typed.topic}-value", "NONE")
        typed.register(json_schema(id="integer", item="string", price="number"), "JSON")
        spark.sql(f"INSERT INTO {name} (value) SELECT named_struct('id', 7L, 'item', 'tea')")
        found = spark.sql(f"SELECT value.id, value.item, offset FROM {name} ORDER BY offset").collect()
        assert found == [(0, "item 0", 0), (7, "tea", 1)]
        assert len(spark.table(name).schema["value"].dataType.fields) == 2
        assert typed.registry.get_latest_version(f"{typed.topic}-value").version == 2
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_a_stream_reads_and_writes_typed_values(
    spark: SparkSession, typed: TypedLab, checkpoint: str, tmp_path: Path
) -> None:
    typed.produce(*typed.encode_json(ORDERS))
    into = typed.other("loud")
    rows = spark.readStream.format("penstock").options(**typed.options(startingOffsets="earliest", **JSON)).load()
    loud = rows.selectExpr("CAST(value.id AS STRING) AS key", "value.id", "upper(value.item) AS item")
    writer = loud.writeStream.format("penstock").options(**into.write_options(**JSON), checkpointLocation=checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    found = load(spark, into, **JSON).selectExpr("cast(key AS string)", "value.item").orderBy("key").collect()
    assert found == [(str(row["id"]), str(row["item"]).upper()) for row in ORDERS]


def test_an_incompatible_schema_fails_before_anything_is_written(spark: SparkSession, typed: TypedLab) -> None:
    typed.register(json_schema(id="integer"), "JSON")
    with pytest.raises(PySparkException, match=r"the schema of the values cannot be registered.*TYPE_CHANGED"):
        save(spark.sql("SELECT 'x' AS id"), typed, **JSON)
    assert typed.lab.values(typed.topic) == []


def test_a_row_that_does_not_fit_fails_with_its_field(spark: SparkSession, typed: TypedLab) -> None:
    typed.register(json_schema(id="integer", item="string"), "JSON")
    rows: Any = spark.sql("SELECT * FROM VALUES (1L, 'x'), (NULL, 'y') AS t(id, item)")
    with pytest.raises(PySparkException, match=r"the value of a row does not fit its schema: .*'id' is null"):
        save(rows, typed, useLatestSchema="true", **JSON)
    assert typed.lab.values(typed.topic) == []

"""SQL tables over topics: CREATE TABLE, SELECT and INSERT, and what Spark does not pass on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.spark import table
from penstock.spark.errors import BadOption, BadSchema
from penstock.spark.source import PenstockDataSource

from .lab import SCHEMA, Lab

BOOTSTRAP = {"kafka.bootstrap.servers": "127.0.0.1:1"}
MakeTable = Callable[..., str]


def properties(**options: str) -> dict[str, str]:
    """What Spark passes for a new table."""
    given = BOOTSTRAP | options
    return {
        "provider": "penstock",
        "owner": "me",
        **given,
        **{f"option.{name}": text for name, text in given.items()},
    }


def new_table(**options: str) -> StructType:
    return PenstockDataSource(properties(**options)).schema()


@pytest.fixture
def make_table(spark: SparkSession, lab: Lab, topic: str) -> Iterator[MakeTable]:
    """Creates a table over a topic with 1 partition; returns its name."""
    made: list[str] = []

    def make(suffix: str = "", **options: str) -> str:
        name = f"{topic}{suffix}".replace("-", "_")
        lab.create(name)
        shown = ", ".join(f"`{key}` '{value}'" for key, value in (lab.options() | {"topic": name} | options).items())
        spark.sql(f"CREATE TABLE {name} USING penstock OPTIONS ({shown})")
        made.append(name)
        return name

    yield make
    for name in made:
        spark.sql(f"DROP TABLE {name}")


def values(spark: SparkSession, name: str) -> list[str]:
    rows = spark.sql(f"SELECT CAST(value AS STRING) AS value FROM {name} ORDER BY offset").collect()
    return [row.value for row in rows]


def test_rows_are_inserted_and_selected(spark: SparkSession, make_table: MakeTable) -> None:
    name = make_table()
    spark.sql(f"INSERT INTO {name} (key, value) VALUES (CAST('k' AS BINARY), CAST('one' AS BINARY))")
    spark.sql(f"INSERT INTO {name} BY NAME SELECT CAST('two' AS BINARY) AS value")
    spark.sql("SELECT CAST('three' AS BINARY) AS value").writeTo(name).append()
    assert values(spark, name) == ["one", "two", "three"]
    (row,) = spark.sql(f"SELECT CAST(key AS STRING) AS key, topic, partition FROM {name} WHERE offset = 0").collect()
    assert (row.key, row.topic, row.partition) == ("k", name, 0)


def test_rows_never_go_to_the_topic_of_the_table_that_they_come_from(
    spark: SparkSession, make_table: MakeTable
) -> None:
    """Spark passes the options of the source here: a table that trusts them would write to the wrong topic."""
    one, other = make_table(), make_table("_copy")
    spark.sql(f"INSERT INTO {one} (value) VALUES (CAST('x' AS BINARY))")
    with pytest.raises(PySparkException, match="name the columns to write"):
        spark.sql(f"INSERT INTO {other} SELECT * FROM {one}")
    with pytest.raises(PySparkException, match="name the columns to write"):
        spark.table(one).writeTo(other).append()
    assert (values(spark, one), values(spark, other)) == (["x"], [])
    spark.sql(f"INSERT INTO {other} (key, value) SELECT key, value FROM {one}")
    assert (values(spark, one), values(spark, other)) == (["x"], ["x"])


def test_options_of_a_query_override_those_of_the_table(spark: SparkSession, make_table: MakeTable) -> None:
    name = make_table()
    spark.sql(f"INSERT INTO {name} (value) VALUES (CAST('x' AS BINARY)), (CAST('y' AS BINARY))")
    limited = f"""SELECT count(*) AS n FROM {name} WITH (`endingOffsets` = '{{"{name}": {{"0": 1}}}}')"""
    assert spark.sql(limited).collect()[0].n == 1


def test_a_table_is_read_as_a_stream(spark: SparkSession, make_table: MakeTable, tmp_path: Any) -> None:
    name = make_table(startingOffsets="earliest")
    spark.sql(f"INSERT INTO {name} (value) VALUES (CAST('x' AS BINARY))")
    stream = spark.readStream.table(name).selectExpr("CAST(value AS STRING) AS value")
    writer = stream.writeStream.format("memory").queryName(f"{name}_rows")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert [row.value for row in spark.table(f"{name}_rows").collect()] == ["x"]


# -- without Spark


def test_a_misspelled_option_is_refused_when_the_table_is_created() -> None:
    with pytest.raises(BadOption, match="there is no option 'topik' for a table; did you mean 'topic'"):
        new_table(topik="orders")
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers"):
        PenstockDataSource({"provider": "penstock", "owner": "me"}).schema()
    with pytest.raises(BadOption, match="'delivery' is 'maybe'"):
        new_table(topic="orders", delivery="maybe")


def test_a_table_with_columns_or_as_select_has_no_options() -> None:
    source = PenstockDataSource({})
    with pytest.raises(BadOption, match="Create the table with CREATE TABLE orders USING penstock OPTIONS"):
        source.reader(SCHEMA)
    with pytest.raises(BadOption, match="without column names"):
        source.writer(SCHEMA, overwrite=False)


def test_rows_that_are_not_a_tables_need_options() -> None:
    rows = StructType(new_table(topic="orders").fields[:2])  # key and value of a table, without its offset
    with pytest.raises(BadSchema, match=r"toTable\(\)"):
        PenstockDataSource({}).writer(rows, overwrite=False)


def test_tables_have_different_marks() -> None:
    marks = {table.table_mark(BOOTSTRAP | {"topic": name}) for name in ("a", "b", "c")}
    assert len(marks) == 3
    assert all(mark < 0 for mark in marks)


@pytest.mark.parametrize(
    ("options", "topic"), [({"topic": "a"}, "a"), ({"subscribe": "a"}, "a"), ({"subscribe": "a,b"}, None)]
)
def test_a_table_of_one_topic_is_read_and_written(options: dict[str, str], topic: str | None) -> None:
    found = table.options_of(new_table(**options))
    assert found is not None
    assert table.for_reading(found)["subscribe"] == (topic or "a,b")
    assert table.for_writing(found).get("topic") == topic

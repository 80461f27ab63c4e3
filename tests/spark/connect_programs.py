"""Programs that use Spark through penstock.spark.session, each as a process: `connect_programs.py NAME JSON`.

They write their result as JSON on the last line of standard output.
"""

import json
import sys
from typing import Any

import penstock.spark
from penstock.foundation.errors import PenstockError
from penstock.spark.query_start import start_query


def _brokers(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap}


def _values(spark: Any, bootstrap: str, topic: str) -> list[str]:
    frame = spark.read.format("penstock").options(**_brokers(bootstrap), subscribe=topic).load()
    return sorted(row.value for row in frame.selectExpr("cast(value AS STRING) AS value").collect())


def connected(where: dict[str, str]) -> int:
    spark = penstock.spark.session(**where)
    return int(spark.range(3).count())


def topics(where: dict[str, str], bootstrap: str, topic: str, checkpoint: str) -> dict[str, Any]:
    """Writes 100 rows as a batch into `topic`, and copies them as a stream into `topic`-copy."""
    spark = penstock.spark.session(**where)
    rows = spark.range(100, numPartitions=3).selectExpr("cast(id AS STRING) AS key", "cast(id AS STRING) AS value")
    rows.write.format("penstock").options(**_brokers(bootstrap), topic=topic).mode("append").save()
    reader = spark.readStream.format("penstock").options(**_brokers(bootstrap), subscribe=topic)
    stream = reader.option("startingOffsets", "earliest").load().selectExpr("key", "value")
    for _ in range(2):  # the second finds nothing new
        writer = stream.writeStream.format("penstock").options(**_brokers(bootstrap), topic=f"{topic}-copy")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        start_query(writer.start).awaitTermination()
    return {"batch": _values(spark, bootstrap, topic), "stream": _values(spark, bootstrap, f"{topic}-copy")}


def tables(where: dict[str, str], bootstrap: str, topic: str) -> dict[str, Any]:
    """A SQL table over `topic`, which is written and read."""
    spark = penstock.spark.session(**where)
    given = f"`kafka.bootstrap.servers` '{bootstrap}', topic '{topic}'"
    spark.sql(f"CREATE TABLE connect_table USING penstock OPTIONS ({given})")
    try:
        spark.sql("INSERT INTO connect_table (key, value) VALUES (CAST('k' AS BINARY), CAST('one' AS BINARY))")
        spark.sql("SELECT CAST('two' AS BINARY) AS value").writeTo("connect_table").append()
        rows = spark.sql("SELECT CAST(value AS STRING) AS value FROM connect_table ORDER BY offset").collect()
        try:
            spark.sql(
                f"CREATE TABLE other USING penstock OPTIONS (`kafka.bootstrap.servers` '{bootstrap}', topik 'a')"
            )
        except Exception as error:  # noqa: BLE001 - its message is the result
            refused = str(error)
        return {"values": [row.value for row in rows], "refused": refused}
    finally:
        spark.sql("DROP TABLE connect_table")


def foreach_batch(where: dict[str, str], bootstrap: str, topic: str, checkpoint: str) -> list[str]:
    """Copies `topic` into `topic`-each by foreachBatch, fifty rows at a time, each batch once."""
    spark = penstock.spark.session(**where)
    brokers = _brokers(bootstrap)

    def write(rows: Any, number: int) -> None:
        once = {"txnAppId": f"{topic}-each", "txnVersion": str(number)}
        writer = rows.select("key", "value").write.format("penstock").options(**brokers, **once)
        writer.option("topic", f"{topic}-each").mode("append").save()

    reader = spark.readStream.format("penstock").options(**brokers, subscribe=topic, maxOffsetsPerTrigger="50")
    writer = reader.option("startingOffsets", "earliest").load().writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    start_query(writer.start).awaitTermination()
    return _values(spark, bootstrap, f"{topic}-each")


def failing(program: str, arguments: dict[str, Any]) -> str:
    """Runs a program that must fail; returns the message."""
    try:
        PROGRAMS[program](**arguments)
    except PenstockError as error:
        return error.message
    raise AssertionError(f"{program} did not fail")


PROGRAMS = {each.__name__: each for each in (connected, topics, tables, foreach_batch, failing)}

if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](**json.loads(sys.argv[2]))))  # noqa: T201

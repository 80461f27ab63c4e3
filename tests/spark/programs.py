"""Programs that use a session of penstock.spark.session, each in a process of its own: `programs.py NAME JSON`.

A process can have only one kind of session. They write their result as JSON on the last line of standard output.
"""

import json
import subprocess
import sys
from typing import Any

from pyspark.errors import PySparkException

import penstock.spark
from penstock.foundation.errors import PenstockError
from penstock.spark.query_start import start_query

PROGRAM_S = 800.0


def start_program(name: str, **arguments: Any) -> subprocess.Popen[str]:
    """Starts a program as a process."""
    command = [sys.executable, __file__, name, json.dumps(arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_program(name: str, **arguments: Any) -> Any:
    """Runs a program and returns its result."""
    process = start_program(name, **arguments)
    try:
        out, err = process.communicate(timeout=PROGRAM_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def failure_of(name: str, **arguments: Any) -> str:
    """Runs a program that must raise a PenstockError, and returns its message."""
    found = run_program("failing", program=name, arguments=arguments)
    assert isinstance(found, str)
    return found


Brokers = str | dict[str, str]
"""Addresses of brokers, or all options about them: with TLS and a login."""


def _brokers(bootstrap: Brokers) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap


def _values(spark: Any, bootstrap: Brokers, topic: str) -> list[str]:
    frame = spark.read.format("penstock").options(**_brokers(bootstrap), subscribe=topic).load()
    return sorted(row.value for row in frame.selectExpr("cast(value AS STRING) AS value").collect())


def connected(where: dict[str, str]) -> int:
    spark = penstock.spark.session(**where)
    return int(spark.range(3).count())


def topics(where: dict[str, str], bootstrap: Brokers, topic: str, checkpoint: str) -> dict[str, Any]:
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
        except PySparkException as error:
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

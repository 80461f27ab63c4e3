"""Reads, writes and streams topics: `spark_job.py BOOTSTRAP TOPIC FOLDER`, with any PySpark and Python.

Prints the versions and what it has read as JSON, on the last line.
"""

import json
import platform
import sys

import pyspark

import penstock.spark
from penstock.spark.query_start import start_query


def main(bootstrap: str, topic: str, folder: str) -> None:
    conf = {
        "spark.driver.memory": "768m",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.log.level": "ERROR",
    }
    spark = penstock.spark.session(master="local[2]", conf=conf)
    brokers = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.range(200, numPartitions=2).selectExpr("cast(id AS STRING) AS key", "cast(id AS STRING) AS value")
    rows.write.format("penstock").options(**brokers, topic=topic).mode("append").save()
    reader = spark.readStream.format("penstock").options(**brokers, subscribe=topic, startingOffsets="earliest")
    writer = reader.load().selectExpr("key", "value").writeStream.format("penstock")
    writer = writer.options(**brokers, topic=f"{topic}-copy", checkpointLocation=f"{folder}/checkpoint")
    writer = writer.trigger(availableNow=True)
    for _ in range(2):  # the second finds nothing new
        start_query(writer.start).awaitTermination()
    options = f"`kafka.bootstrap.servers` '{bootstrap}', topic '{topic}-copy'"
    spark.sql(f"CREATE TABLE copied USING penstock OPTIONS ({options})")
    spark.sql("INSERT INTO copied (value) VALUES (CAST('200' AS BINARY))")
    found = spark.sql("SELECT CAST(value AS STRING) AS value FROM copied").collect()
    versions = {"spark": pyspark.__version__, "python": platform.python_version()}
    print(json.dumps({**versions, "values": sorted(int(row.value) for row in found)}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])

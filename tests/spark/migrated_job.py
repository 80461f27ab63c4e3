"""A job that gets its format by name: python -m tests.spark.migrated_job FORMAT BOOTSTRAP TOPIC FOLDER [JARS].

It is the same with Spark's Kafka source and with ours, and says what it has read as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from .conftest import ENVIRONMENT, SESSION


def rows_of(frame: DataFrame) -> list[list[Any]]:
    """The rows, in an order and in a form that can be compared."""
    columns = [
        F.base64("key"),
        F.base64("value"),
        "topic",
        "partition",
        "offset",
        F.unix_micros("timestamp"),
        "timestampType",
    ]
    if "headers" in frame.columns:
        columns.append(F.transform("headers", lambda header: F.struct(header["key"], F.base64(header["value"]))))
    rows = frame.orderBy("topic", "partition", "offset").select(*columns).collect()
    return [[list(map(list, cell)) if isinstance(cell, list) else cell for cell in row] for row in rows]


def main(source: str, bootstrap: str, topic: str, folder: str, jars: str = "") -> None:
    os.environ.update(ENVIRONMENT)
    builder = SparkSession.builder.appName("moving").master("local[2]")
    for name, value in {**SESSION, "spark.jars": jars, "spark.sql.warehouse.dir": f"{folder}/warehouse"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found = {}
    for headers in ("false", "true"):
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "includeHeaders": headers,
            "minPartitions": "5",
        }
        batch = spark.read.format(source).options(**options).load()
        found[f"schema, headers {headers}"] = batch.schema.jsonValue()
        found[f"batch, headers {headers}"] = rows_of(batch)
        part = batch.where("partition = 1 AND offset >= 20").where(F.col("timestamp") > F.timestamp_millis(F.lit(0)))
        found[f"filtered, headers {headers}"] = rows_of(part)
        into = f"{folder}/out-{headers}"
        stream = spark.readStream.format(source).options(**options, maxOffsetsPerTrigger="60").load()
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint-{headers}")
            .trigger(availableNow=True)
            .start(into)
        )
        query.awaitTermination()
        found[f"stream, headers {headers}"] = rows_of(spark.read.schema(batch.schema).parquet(into))
        logged = sorted(
            Path(f"{folder}/checkpoint-{headers}/offsets").glob("[0-9]*"), key=lambda path: int(path.name)
        )
        found[f"offsets, headers {headers}"] = [json.loads(path.read_text().splitlines()[-1]) for path in logged]
    Path(folder, "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

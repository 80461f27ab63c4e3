"""A stream of Spark's own Kafka connector between two topics, until it is killed: run with one argument, JSON.

Keys: trigger (the arguments of `trigger`), mode (output mode), bootstrap, source, target, folder, jars.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.conftest import ENVIRONMENT, SESSION


def main(plan: dict[str, Any]) -> None:
    os.environ.update(ENVIRONMENT)
    builder = SparkSession.builder.appName("connector").master("local[4]")
    own = {"spark.jars": plan["jars"], "spark.sql.warehouse.dir": f"{plan['folder']}/warehouse"}
    for name, value in (SESSION | own).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    brokers = {"kafka.bootstrap.servers": plan["bootstrap"]}
    reader = spark.readStream.format("kafka").options(**brokers, subscribe=plan["source"], startingOffsets="earliest")
    writer = reader.load().selectExpr("key", "upper(cast(value AS STRING)) AS value").writeStream.format("kafka")
    writer = writer.options(**brokers, topic=plan["target"], checkpointLocation=f"{plan['folder']}/checkpoint")
    query = writer.outputMode(plan["mode"]).trigger(**plan["trigger"]).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

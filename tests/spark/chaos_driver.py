"""The driver of a streaming query, as a process that can be killed: topic to topic over a shuffle, until stopped.

Run with one argument, JSON: master, bootstrap, source, target, checkpoint, delivery, folder, position.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark import register

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.sql.shuffle.partitions": "3",
    "spark.log.level": "ERROR",
    "spark.pyspark.python": sys.executable,
    # Tasks are short here: one that is a little slower than the others is run a second time.
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "1ms",
    # Executors are killed on purpose, and must come back however often.
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.excludeOnFailure.enabled": "false",
    "spark.task.maxFailures": "20",
    "spark.stage.maxConsecutiveAttempts": "20",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    "spark.sql.streaming.minBatchesToRetain": "1000",
}


def main(plan: dict[str, Any]) -> None:
    builder = SparkSession.builder.appName("chaos").master(plan["master"])
    for name, value in {**SETTINGS, "spark.sql.warehouse.dir": f"{plan['folder']}/warehouse"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    brokers = {"kafka.bootstrap.servers": plan["bootstrap"]}
    rows = (
        spark.readStream.format("penstock")
        .options(**brokers, subscribe=plan["source"], startingOffsets=plan["position"], maxOffsetsPerTrigger="1500")
        .load()
        .selectExpr("key", "value")
        .repartition(3)
    )
    query = (
        rows.writeStream.format("penstock")
        .options(**brokers, topic=plan["target"], delivery=plan["delivery"])
        .option("checkpointLocation", plan["checkpoint"])
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

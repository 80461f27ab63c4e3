"""Penstock's data source for Spark, and the pipelines that run on it.

penstock.spark.register(spark)
spark.read.format("penstock").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()
"""

from penstock.foundation.lazy import lazily

# The types of these names are in __init__.pyi. PySpark is imported with the first of them.
_HOMES = {
    "register": "penstock.spark.registration",
    "PenstockDataSource": "penstock.spark.source",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazily(__name__, _HOMES)

"""The PySpark data source `penstock`, and ready-made Spark pipelines.

penstock.spark.register(spark)
spark.read.format("penstock").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()
"""

from penstock.foundation.lazy import lazily

# __init__.pyi declares their types. PySpark is imported when the first of them is used.
_HOMES = {
    "register": "penstock.spark.registration",
    "session": "penstock.spark.sessions",
    "PenstockDataSource": "penstock.spark.source",
}
__all__ = [*_HOMES]
__getattr__, __dir__ = lazily(__name__, _HOMES)

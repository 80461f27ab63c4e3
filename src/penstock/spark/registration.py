"""Registers the `penstock` data source with a Spark session."""

from pyspark.sql import SparkSession

from penstock.spark.source import PenstockDataSource


def register(spark: SparkSession) -> None:
    """Registers `format("penstock")`. Spark finds it automatically if this package is installed for its Python.

    >>> register(spark)
    >>> spark.read.format("penstock").option("subscribe", "orders")
    """
    spark.dataSource.register(PenstockDataSource)

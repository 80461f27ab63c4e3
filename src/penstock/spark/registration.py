"""Registers the `penstock` data source with a Spark session."""

from pyspark.sql import SparkSession

from penstock.spark.source import PenstockDataSource


def register(spark: SparkSession) -> None:
    """Registers `format("penstock")`. Not needed if this package is installed in Spark's Python environment.

    >>> register(spark)
    >>> spark.read.format("penstock").option("subscribe", "orders")
    """
    spark.dataSource.register(PenstockDataSource)

"""Registers the `penstock` data source with a Spark session."""

from pyspark.sql import SparkSession

from penstock.spark.source import PenstockDataSource


def register(spark: SparkSession) -> None:
    """Registers `format("penstock")`. Not needed if Spark's Python has this package installed: Spark finds it then.

    >>> register(spark)
    >>> spark.read.format("penstock").option("subscribe", "orders")
    """
    spark.dataSource.register(PenstockDataSource)

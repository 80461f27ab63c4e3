"""Making the data source known to a Spark session."""

from pyspark.sql import SparkSession

from penstock.spark.source import PenstockDataSource


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known. Spark finds it by itself where this package is installed for its Python.

    >>> register(spark)
    >>> spark.read.format("penstock").option("subscribe", "orders")
    """
    spark.dataSource.register(PenstockDataSource)

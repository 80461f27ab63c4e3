"""Registers the data source automatically: Spark imports packages named `pyspark_*` and their DefaultSource."""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]

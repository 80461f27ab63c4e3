"""Spark imports every package whose name begins with `pyspark_`, and registers its DefaultSource."""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]

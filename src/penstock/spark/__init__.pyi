"""The types of what `penstock.spark` offers; at run time these names are imported when they are first used."""

from penstock.spark.registration import register as register
from penstock.spark.source import PenstockDataSource as PenstockDataSource

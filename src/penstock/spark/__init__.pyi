"""Types of the public names of `penstock.spark`, which are imported lazily at run time."""

from penstock.spark.registration import register as register
from penstock.spark.sessions import session as session
from penstock.spark.source import PenstockDataSource as PenstockDataSource

"""Spark's own Kafka connector, for comparison."""

from pathlib import Path

import pytest

from bench.cache import NotRun
from bench.peers import spark_connector

ROOT = Path(__file__).parent.parent.parent


def connector_jars() -> str:
    """The jars, with commas between them. Where there is no Maven the test is skipped."""
    try:
        return spark_connector.connector_jars()
    except NotRun as reason:
        pytest.skip(str(reason))

"""Spark's own Kafka connector, from Maven Central: what jobs move from."""

from typing import Final

from bench.peers.maven import exact_jars

VERSION: Final = "4.2.0"
"""The newest of which Maven Central has the connector. It runs on the PySpark that we have."""
ARTEFACTS: Final = {
    "spark-sql-kafka-0-10_2.13": ("org.apache.spark", VERSION),
    "spark-token-provider-kafka-0-10_2.13": ("org.apache.spark", "4.0.0"),  # the newest there
    "kafka-clients": ("org.apache.kafka", "3.9.2"),
    "commons-pool2": ("org.apache.commons", "2.13.1"),
}
"""All that Spark does not have itself, by name: what the connector asks for is not all there."""


def connector_jars() -> str:
    """The jars, with commas between them."""
    return ",".join(str(path) for path in sorted(exact_jars("spark-connector", VERSION, ARTEFACTS).glob("*.jar")))

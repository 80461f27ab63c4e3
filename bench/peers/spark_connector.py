"""Spark's own Kafka connector, from Maven Central: what jobs move from."""

import shutil
import subprocess
from typing import Final

from bench.cache import NotRun, cache_folder
from bench.peers.maven import PLUGIN

VERSION: Final = "4.2.0"
"""The newest of which Maven Central has the connector. It runs on the PySpark that we have."""
ARTEFACTS: Final = {
    "spark-sql-kafka-0-10_2.13": ("org.apache.spark", VERSION),
    "spark-token-provider-kafka-0-10_2.13": ("org.apache.spark", "4.0.0"),  # the newest there
    "kafka-clients": ("org.apache.kafka", "3.9.2"),
    "commons-pool2": ("org.apache.commons", "2.13.1"),
}
"""All that Spark does not have itself, by name: what the connector asks for is not all there."""
RESOLVE_S_MAX: Final = 300


def connector_jars() -> str:
    """The jars, with commas between them."""
    cache = cache_folder("spark-connector")
    folder = cache / VERSION
    if not folder.exists():
        if shutil.which("mvn") is None:
            raise NotRun("mvn is not installed: Spark's Kafka connector comes through Maven")
        fresh = cache / f"{VERSION}.new"
        fresh.mkdir(exist_ok=True)
        for name, (group, version) in ARTEFACTS.items():
            _maven("get", f"-Dartifact={group}:{name}:{version}", "-Dtransitive=false")
            _maven("copy", f"-Dartifact={group}:{name}:{version}", f"-DoutputDirectory={fresh}")
        fresh.rename(folder)
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))


def _maven(goal: str, *arguments: str) -> None:
    command = ["mvn", "-B", "-q", f"{PLUGIN}:{goal}", *arguments]
    done = subprocess.run(
        command,
        cwd=cache_folder("spark-connector"),
        capture_output=True,
        text=True,
        timeout=RESOLVE_S_MAX,
        check=False,
    )
    if done.returncode:
        raise NotRun(f"Maven cannot fetch Spark's connector: {(done.stdout + done.stderr)[-300:]}")

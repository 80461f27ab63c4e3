"""Spark's own Kafka connector, from Maven Central: what jobs move from."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / "bench" / ".cache" / "spark-connector"
"""Beside the other peers' jars; it is not committed."""
VERSION = "4.2.0"
"""The newest of which Maven Central has the connector. It runs on the PySpark that we have."""
ARTEFACTS = {
    "spark-sql-kafka-0-10_2.13": ("org.apache.spark", VERSION),
    "spark-token-provider-kafka-0-10_2.13": ("org.apache.spark", "4.0.0"),  # the newest there
    "kafka-clients": ("org.apache.kafka", "3.9.2"),
    "commons-pool2": ("org.apache.commons", "2.13.1"),
}
"""All that Spark does not have itself, by name: what the connector asks for is not all there."""
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
RESOLVE_S_MAX = 300


def connector_jars() -> str:
    """The jars, with commas between them. Where there is no Maven the test is skipped."""
    folder = CACHE / VERSION
    if not folder.exists():
        if shutil.which("mvn") is None:
            pytest.skip("Maven is not installed: Spark's Kafka connector comes through it")
        fresh = CACHE / f"{VERSION}.new"
        fresh.mkdir(parents=True, exist_ok=True)
        for name, (group, version) in ARTEFACTS.items():
            _maven("get", f"-Dartifact={group}:{name}:{version}", "-Dtransitive=false")
            _maven("copy", f"-Dartifact={group}:{name}:{version}", f"-DoutputDirectory={fresh}")
        fresh.rename(folder)
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))


def _maven(goal: str, *arguments: str) -> None:
    command = ["mvn", "-B", "-q", f"{PLUGIN}:{goal}", *arguments]
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=RESOLVE_S_MAX, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]

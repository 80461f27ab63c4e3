"""A YARN cluster: a resource manager and two node managers in one process of Hadoop's own test classes."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from bench.cache import NotRun
from bench.peers.maven import exact_jars
from tests.clients.waiting import wait_until

from .connect_server import SPARK_HOME

START_S: Final = 300.0
_HADOOP: Final = "3.5.0"
"""The version of the Hadoop client that PySpark brings."""
_ARTEFACTS: Final[Mapping[str, tuple[str, str]]] = {
    "hadoop-client-minicluster": ("org.apache.hadoop", _HADOOP),
    # What it needs beside PySpark's jars.
    "junit-jupiter-api": ("org.junit.jupiter", "5.13.4"),
    "junit-platform-commons": ("org.junit.platform", "1.13.4"),
    "opentest4j": ("org.opentest4j", "1.3.0"),
    "bcprov-jdk18on": ("org.bouncycastle", "1.82"),
    "bcpkix-jdk18on": ("org.bouncycastle", "1.82"),
    "bcutil-jdk18on": ("org.bouncycastle", "1.82"),
}


class YarnCluster:
    """Ended by its own pid. `configuration`: the folder for HADOOP_CONF_DIR."""

    def __init__(self, folder: Path) -> None:
        try:
            jars = exact_jars("hadoop-minicluster", _HADOOP, _ARTEFACTS)
        except NotRun as reason:
            pytest.skip(str(reason))
        self.configuration = folder / "conf"
        self.configuration.mkdir(parents=True)
        log = folder / "yarn.log"
        source = Path(__file__).with_name("java") / "YarnCluster.java"
        command = ["java", "-Xmx600m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*:{SPARK_HOME}/jars/*", str(source)]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, str(self.configuration)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={name: text for name, text in os.environ.items() if not name.startswith(("HADOOP", "YARN"))},
                start_new_session=True,
            )

        def is_up() -> bool:
            assert self._process.poll() is None, log.read_text()[-2000:]
            return (self.configuration / "yarn-site.xml").is_file()

        wait_until(is_up, "the YARN cluster is up", START_S)

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

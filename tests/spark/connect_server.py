"""A Spark Connect server in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from penstock.spark.java import provide_java
from penstock.spark.worker_python import worker_python
from tests.clients.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 300.0
_READY = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_SETTINGS: Mapping[str, str] = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


class ConnectServer:
    """Started as `sbin/start-connect-server.sh` does it; ended by its own pid. `python`: that of its workers."""

    def __init__(
        self,
        folder: Path,
        *,
        master: str = "local[2]",
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        provide_java(folder / "java")
        self._log = folder / "connect.log"
        own = {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": worker_python() if python == sys.executable else python,
        }
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
        for name, value in (_SETTINGS | (settings or {})).items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,  # where it puts its warehouse
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | own | dict(environment or {}),
                start_new_session=True,
            )
        found = wait_until(lambda: _READY.search(self.log), "the Spark Connect server is up", START_S)
        self.port = int(found[1])
        self.url = f"sc://localhost:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kills the server and the Python processes that it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> "ConnectServer":
        return self

    def __exit__(self, *args: object) -> None:
        if self._process.poll() is None:
            self.kill()

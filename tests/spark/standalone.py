"""A standalone Spark cluster: a master and two workers."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pyspark

from penstock.spark.java import provide_java
from tests.clients.waiting import wait_until


class Standalone:
    """A real master and two workers, as `sbin/start-all.sh` would start them; ended by their own pids."""

    def __init__(self, folder: Path) -> None:
        provide_java(folder / "java")
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_LOG_DIR": str(folder),
            "SPARK_NO_DAEMONIZE": "1",
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        package = "org.apache.spark.deploy"
        ui = ("--webui-port", "0")
        self._start("master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), *ui)
        self._until("master", 1, "I have been elected leader")
        for number in range(2):
            worker = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", *ui, self.url)
            self._start(f"worker{number}", f"{package}.worker.Worker", *worker)
        self._until("master", 2, "Registering worker")

    def _start(self, name: str, *arguments: str) -> None:
        command = [str(Path(self._environment["SPARK_HOME"]) / "bin" / "spark-class"), *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment, start_new_session=True)
        self._processes.append(process)

    def _until(self, name: str, count: int, said: str) -> None:
        log = self._folder / f"{name}.log"
        wait_until(lambda: log.read_text().count(said) >= count, f"{name}: {said}", 60.0)

    @property
    def executors(self) -> int:
        """How many executors the workers have ever started."""
        logs = [self._folder / f"worker{number}.log" for number in range(2)]
        return sum(1 for log in logs if "Asked to launch executor" in log.read_text())

    def stop(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)

"""A real `penstock serve` process, to be started, killed and started again."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

READY = "penstock is ready"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class BrokerProcess:
    """One broker with its data folder and its addresses, which stay the same from start to start."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.http_port = free_port()
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.log_path = data_dir.with_suffix(".log")

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when the broker says that it is ready."""
        command = [str(Path(sys.executable).with_name("penstock")), "serve", "--data-dir", str(self.data_dir)]
        addresses = ["--listen", self.bootstrap, "--http", f"127.0.0.1:{self.http_port}"]
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                [*command, *addresses, *self._options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(READY), f"the broker did not start: {line} {self.log_path.read_text()[-2000:]}"

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, closed or said."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        """SIGTERM: an orderly end; the exit code."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        assert self._process is not None
        code = self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

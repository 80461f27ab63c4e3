"""Servers as child processes: started, waited for, and ended by their own process id."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.blocking_client import BlockingClient, WrongAnswer

START_S_MAX: Final = 90.0
STOP_S_MAX: Final = 30.0
PROBE_EVERY_S: Final = 0.002


class StartFailed(Exception):
    """A server ended, or was not ready in time; the text holds the end of what it said."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One server process; what it says on stderr goes to a file."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, port: int, env: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        self._log = log
        self.spawned_s = time.perf_counter()
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(env or {})},
                start_new_session=True,  # Ctrl-C is for us: servers are stopped in order
            )
        self.pid = self._child.pid

    def wait_for_line(self) -> float:
        """Seconds from the spawn to the first line that the process prints."""
        assert self._child.stdout is not None
        readable, _, _ = select.select([self._child.stdout], [], [], START_S_MAX)
        if not readable or not self._child.stdout.readline():
            raise self._failure()
        return time.perf_counter() - self.spawned_s

    def wait_for_answer(self) -> float:
        """Seconds from the spawn to the first answered Kafka request."""
        while time.perf_counter() - self.spawned_s < START_S_MAX:
            with (
                contextlib.suppress(OSError, WrongAnswer),
                BlockingClient(self.port, timeout_s=START_S_MAX) as client,
            ):
                client.versions()
                return time.perf_counter() - self.spawned_s
            self._check_alive()
            time.sleep(PROBE_EVERY_S)
        raise self._failure()

    def wait_for_port(self) -> None:
        while time.perf_counter() - self.spawned_s < START_S_MAX:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            self._check_alive()
            time.sleep(PROBE_EVERY_S)
        raise self._failure()

    def _check_alive(self) -> None:
        if self._child.poll() is not None:
            raise self._failure()

    def _failure(self) -> StartFailed:
        said = self._log.read_text(errors="replace")[-2000:]
        return StartFailed(f"{self._child.args!r} is not ready (exit status {self._child.poll()}): {said}")

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End this process, kindly first."""
        if self._child.poll() is None:
            self._child.send_signal(number)
            try:
                self._child.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait(STOP_S_MAX)
        if self._child.stdout is not None:
            self._child.stdout.close()

"""One broker of a cluster: a process on a machine of its own, kept running as an operator's supervisor would."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.clients.waiting import wait_until

from .cluster_net import Network

PORT = 9092
HTTP_PORT = 9324
READY = "penstock is ready"
START_S = 180.0
STOP_S = 60.0
PAUSE_S = 1.0
COMES_BACK = re.compile(r"^Error: .*(did not answer|cannot be reached|is closed|failed|No space left)", re.MULTILINE)
"""The last words of a broker that cannot start without a store, or without any space: it is started again."""


class ClusterBroker:
    """Starts, stops, kills and pauses one broker, on the same machine and folder every time."""

    def __init__(
        self,
        network: Network,
        *,
        name: str,
        node_id: int,
        folder: Path,
        store: str,
        session_s: float,
        data_dir: Path | None = None,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._network = network
        self.name = name
        self.node_id = node_id
        self.folder = folder
        self.data_dir = data_dir or folder / "data"
        self.address = network.addresses[name]
        self.kafka = f"{self.address}:{PORT}"
        self.is_wanted = False
        """Whether it should run: one that ends by itself is started again."""
        self.is_paused = False
        self.comebacks = 0
        self._ended_s = 0.0
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._stdout, self._stderr = folder / "stdout.log", folder / "stderr.log"
        self._began_at = 0
        self._config = folder / "penstock.toml"
        # A JSON string or number is a TOML one too.
        lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in (settings or {}).items()]
        top = [f"session_s = {session_s}", f"node_id = {node_id}", f"store = {json.dumps(store)}"]
        self._config.write_text("\n".join([*top, "[broker]", *lines, ""]))

    def __repr__(self) -> str:
        return f"{self.name} (pid {self._process.pid if self._process else None})"

    # -- its life

    def start(self) -> None:
        """Have it run; `wait_ready` waits until it does."""
        assert self._process is None, f"{self!r} runs already"
        command = [
            str(Path(sys.executable).with_name("penstock")),
            "serve",
            *("--data-dir", str(self.data_dir)),
            *("--listen", self.kafka),
            *("--http", f"{self.address}:{HTTP_PORT}"),
            *("--config", str(self._config)),
        ]
        with self._stdout.open("ab") as stdout, self._stderr.open("ab") as stderr:
            self._began_at = stdout.tell()
            self._process = subprocess.Popen(
                self._network.command(self.name, command), stdout=stdout, stderr=stderr, env=self._environment
            )
        self.is_wanted = True

    @property
    def is_ready(self) -> bool:
        """Whether it has said so since it was last started, and still runs."""
        if self._process is None:
            return False
        with self._stdout.open("rb") as stdout:
            stdout.seek(self._began_at)
            return READY.encode() in stdout.read()

    def wait_ready(self, timeout_s: float = START_S) -> None:
        wait_until(lambda: self.tend() or self.is_ready, f"{self.name} is ready", timeout_s, 0.05, seen=self)

    def tend(self) -> None:
        """Start it again, after a pause, if it could not start; nothing else may end it."""
        if not self.is_wanted:
            return
        if self._process is None:
            if time.monotonic() > self._ended_s + PAUSE_S:
                self.comebacks += 1
                self.start()
        elif (code := self._process.poll()) is not None:
            assert COMES_BACK.search(self.log[-500:]), f"{self.name} ended by itself with {code}:\n{self.log[-3000:]}"
            self._process = None
            self._ended_s = time.monotonic()

    def kill(self) -> None:
        """Give it no chance to do anything more."""
        self.is_wanted = False
        if self._process is not None:  # else it is between two attempts to start
            self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, as an operator would; it must do so cleanly."""
        self.tend()
        code = self._end(signal.SIGTERM)
        assert code == 0, f"{self.name} ended with {code}:\n{self.log[-3000:]}"

    def signal_stop(self) -> None:
        """Ask it to end, and do not wait for it: see `wait_stopped`."""
        assert self._process is not None
        self.is_wanted = False
        self._process.send_signal(signal.SIGTERM)

    def wait_stopped(self) -> int:
        """Its exit code."""
        process, self._process = self._process, None
        assert process is not None
        self.is_wanted = self.is_paused = False
        try:
            return process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self.name} did not end in {STOP_S:g} s:\n{self.log[-3000:]}") from None

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None, f"{self.name} does not run"
        self.is_wanted = False
        self._process.send_signal(number)
        return self.wait_stopped()

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        if self._process is not None and self.is_paused:
            self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def clear(self) -> None:
        """Leave nothing of it behind, however the test has ended."""
        self.is_wanted = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # -- looking at it

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    @property
    def log(self) -> str:
        return self._stderr.read_text(errors="replace")

    def rss_anon_kib(self) -> int:
        """Memory that is the process's own."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1])

"""Broker processes for tests: `penstock serve` in a process of its own, ended by its pid."""

import atexit
import json
import os
import re
import select
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fork_server import PENSTOCK, ForkedProcess, can_fork
from tests.ports import free_port

READY = re.compile(r"penstock is ready: kafka (\S+), http (\S+), ")
START_S = 90.0
STOP_S = 60.0
CALM = {"log.initial.task.delay.ms": 86_400_000, "log.retention.check.interval.ms": 86_400_000}
"""Tests write messages of long ago, and retention must not come by in the middle of one."""
_PROC_STAT = Path("/proc/stat")


def stolen_s() -> float:
    """Time that the host of this virtual machine has taken from its CPUs since boot; 0 where it is not known."""
    if not _PROC_STAT.exists():
        return 0.0
    fields = _PROC_STAT.read_text().partition("\n")[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


_running: "set[BrokerProcess]" = set()


def _kill_left_over() -> None:
    """Kills brokers that a fixture did not stop, such as one that failed before its `yield`."""
    for broker in tuple(_running):
        broker.kill()


atexit.register(_kill_left_over)


class BrokerProcess:
    """Starts, stops, kills and restarts one broker on one data folder, at the same address every time."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: Path | None = None,
        advertise: str | None = None,
        listeners: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        start_s: float = START_S,
        by_exec: bool = False,
    ) -> None:
        """`environment`: variables on top of this process's own. `prefix`: what runs the command, such as `nice`.

        `listeners`: the protocol of each listener, by name, in place of one without a name. The first one is `kafka`
        and the inter-broker listener; `at` has the addresses of all.

        `by_exec`: to measure the start and imports; the process is not forked from one that has imported everything.
        """
        self._prefix = prefix
        self._by_exec = by_exec
        self._start_s = start_s
        self.folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self.data_dir = data_dir or folder / "data"
        self.kafka = f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self._advertise = ["--advertise", advertise] if advertise else []
        self._protocols = dict(listeners or {})
        self.at = {name: f"127.0.0.1:{free_port()}" for name in self._protocols}
        self._process: subprocess.Popen[str] | ForkedProcess | None = None
        self.stolen_before_s = 0.0
        """What `stolen_s` returned before the last start."""
        self._stderr = folder / "stderr.log"
        self._stderr.touch()
        self._config = folder / "penstock.toml"
        # A JSON string or number is a TOML one too.
        of_listeners = {}
        if self.at:
            self.kafka = next(iter(self.at.values()))
            of_listeners = {
                "listeners": ",".join(f"{name}://{at}" for name, at in self.at.items()),
                "listener.security.protocol.map": ",".join(map(":".join, self._protocols.items())),
                "inter.broker.listener.name": next(iter(self.at)),
            }
        values = {**CALM, **of_listeners, **(settings or {})}
        lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in values.items()]
        self._config.write_text("\n".join(["[broker]", *lines, ""]))

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.kafka.rpartition(":")
        return host, int(port)

    def start(self) -> "BrokerProcess":
        assert self._process is None, "the broker runs already"
        self.stolen_before_s = stolen_s()
        command = [
            *self._prefix,
            PENSTOCK,
            "serve",
            *("--data-dir", str(self.data_dir)),
            *([] if self.at else ["--listen", self.kafka]),
            *("--http", self.http),
            *("--config", str(self._config)),
            *self._advertise,
        ]
        with self._stderr.open("a") as stderr:
            if self._prefix or self._by_exec or not can_fork(self._environment):
                self._process = subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self._environment
                )
            else:
                self._process = ForkedProcess(command, environment=self._environment, stderr=stderr.fileno())
        _running.add(self)
        ready = READY.match(self._first_line())
        if ready is None:
            self._reap(signal.SIGKILL)
            raise AssertionError(f"the broker did not say that it is ready; its stderr:\n{self.log}")
        kafka, self.http = ready.groups()
        if self.at:
            self.at = dict(each.split("://") for each in kafka.split(",")) if "://" in kafka else self.at
        else:
            self.kafka = kafka
        return self

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], self._start_s)
        return self._process.stdout.readline() if readable else ""

    def stop(self) -> None:
        """Ask it to end, as an operator would; it must do so cleanly."""
        code = self._reap(signal.SIGTERM)
        assert code == 0, f"the broker ended with {code}; its stderr:\n{self.log}"

    def kill(self) -> None:
        """Give it no chance to do anything more."""
        self._reap(signal.SIGKILL)

    def _reap(self, number: signal.Signals) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        process, self._process = self._process, None
        assert process is not None, "the broker does not run"
        _running.discard(self)
        with process:  # closes its output
            process.send_signal(number)
            try:
                return process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"the broker did not end in {STOP_S:g} s; its stderr:\n{self.log}") from None

    def finish(self) -> None:
        """Stops it if it still runs; its log must not show an unexpected error."""
        if self._process is not None:
            self.stop()
        assert "Traceback" not in self.log, self.log
        assert "level=ERROR" not in self.log, self.log

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        return self._stderr.read_text()

    def rss_anon_kib(self) -> int:
        """Memory that is the process's own: without the page cache that its maps show."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])

    def rss_anon_peak_kib(self, seconds: float, pause_s: float = 0.02) -> int:
        """The most of it that is seen in a while."""
        deadline_s = time.monotonic() + seconds
        peak = self.rss_anon_kib()
        while time.monotonic() < deadline_s:
            time.sleep(pause_s)
            peak = max(peak, self.rss_anon_kib())
        return peak

    def metric(self, name: str) -> float:
        """A number from /metrics: the sum over its labels."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[{{ ]", line))

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

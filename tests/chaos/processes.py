"""Processes that tests kill: started, sent commands, ended by their own ids, and their logs read."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until

from .child import FENCED

ROOT = Path(__file__).parents[2]
END_S = 60.0


@contextmanager
def broker_at(folder: Path, settings: Mapping[str, object]) -> Iterator[BrokerProcess]:
    """A broker that is stopped at the end, or killed if the test has failed."""
    broker = BrokerProcess(folder, settings).start()
    try:
        yield broker
        broker.finish()
    finally:
        if broker.is_running:
            broker.kill()


class Event(NamedTuple):
    """Something that a process has noted. The clock is the machine's: times of all processes compare."""

    at_s: float
    what: str
    details: tuple[Any, ...]


class Child:
    """One life of a process that runs a module of this folder; see child.py for its inside."""

    def __init__(self, name: str, module: str, folder: Path, options: Mapping[str, object]) -> None:
        self.name = name
        self.ended_s: float | None = None
        """When it was killed, or ended: it has done nothing after that, and may have done something until then."""
        self._events: list[Event] = []
        self._notes = folder / f"{name}.notes"
        self._errors = folder / f"{name}.errors"
        self._read_bytes = 0
        with self._notes.open("ab") as notes, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", f"{__package__}.{module}", json.dumps(options)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=notes,
                stderr=errors,
            )

    def __repr__(self) -> str:
        return f"{self.name} (pid {self._process.pid})"

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def events(self) -> list[Event]:
        """Everything that it has noted so far. A line that is not whole yet is left for later."""
        with self._notes.open("rb") as notes:
            notes.seek(self._read_bytes)
            whole, newline, _ = notes.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(newline)
        for line in whole.splitlines():
            at_s, what, *details = json.loads(line)
            self._events.append(Event(at_s, what, tuple(details)))
        return self._events

    def count(self, what: str) -> int:
        return sum(event.what == what for event in self.events())

    def tell(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n".encode())
        self._process.stdin.flush()

    def kill(self) -> None:
        """Give it no chance to do anything more."""
        self.check()
        self.ended_s = time.monotonic()
        self._process.kill()
        self._wait()

    def die_at(self, step: str) -> None:
        """Have it killed by itself when it comes to that step of its work."""
        self.check()
        self.tell(f"die {step}")
        code = self._wait()
        assert code == -signal.SIGKILL, f"{self!r} ended with {code}: {self.errors}"
        self.ended_s = self.events()[-1].at_s

    def freeze_at(self, step: str) -> None:
        """Have it stop where it is when it comes to that step of its work, as if its machine was too busy for it."""
        self.check()
        self.tell(f"freeze {step}")
        wait_until(lambda: self.check() or self.count("frozen"), f"{self!r} freezes", END_S)
        # It logs that just before it stops itself; a process that is continued before that stays stopped.
        wait_until(lambda: self._state() == "T", f"{self!r} is frozen", END_S)

    def _state(self) -> str:
        """As the kernel shows it: T is stopped."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def freeze(self) -> None:
        """Stops it (SIGSTOP) at any point of its code."""
        self.check()
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end_fenced(self) -> None:
        """It must notice that it was replaced, and give up."""
        code = self._wait()
        self.ended_s = time.monotonic()
        assert code == FENCED, f"{self!r} ended with {code}: {self.errors}"

    def stop(self) -> None:
        """Have it end as it should."""
        self.check()
        self.tell("stop")
        code = self._wait()
        self.ended_s = time.monotonic()
        assert code == 0, f"{self!r} ended with {code}: {self.errors}"

    def check(self) -> None:
        """It must not have ended by itself."""
        assert self.ended_s is not None or self.is_alive, f"{self!r} ended by itself: {self.errors}"

    def _wait(self) -> int:
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.clear()
            raise AssertionError(f"{self!r} does not end; the last it noted: {self.events()[-5:]}") from None
        self.clear()
        return code

    def clear(self) -> None:
        """Leave nothing of it behind, however the test has ended."""
        if self.is_alive:
            self._process.kill()
        with self._process:  # waits, and closes its input
            pass

    @property
    def errors(self) -> str:
        return self._errors.read_text()

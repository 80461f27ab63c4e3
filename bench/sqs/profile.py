"""Where a request's time goes: a broker that profiles itself while it answers, by package.

python -m bench.sqs.profile PROFILE serve ... starts such a broker.
"""

import cProfile
import pstats
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.cache import BENCH
from bench.process import Process, free_port
from bench.runs import Window
from bench.sqs.runs import ACTIONS, Cell, cycle

TARGETS: Final = {b"AmazonSQS.SendMessage": "send", b"AmazonSQS.ReceiveMessage": "receive"}
PACKAGES: Final = ("network", "sqs", "broker", "queues", "replication", "log", "records", "foundation")
OTHER: Final = "other"
CELL: Final = Cell(8, 1)
SECONDS: Final = 3.0


class Watched:
    """A broker in a process of its own that notes what its functions take."""

    name = "Penstock"
    forgets_deletions = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def http_port(self) -> int:
        assert self._process is not None
        return self._process.port

    def start(self) -> None:
        port = free_port()
        command: list[str | Path] = [sys.executable, "-m", "bench.sqs.profile", self._folder / "profile", "serve"]
        command += ["--data-dir", self._folder / "data", "--listen", f"127.0.0.1:{free_port()}"]
        command += ["--http", f"127.0.0.1:{port}", "--log-level", "warning"]
        self._process = Process(command, self._folder / "stderr", port, {"PYTHONPATH": str(BENCH.parent)})
        self._process.wait_for_line()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def shares(self, folder: Path) -> dict[str, dict[str, float]]:
        """After a load, and its end: what it took, by action and by package."""
        cycle(self, CELL, Window(seconds=SECONDS, ramp_s=0.0), folder)
        self.stop()
        return {action: _shares(self._folder / f"profile-{action}") for action in ACTIONS}


def _shares(path: Path) -> dict[str, float]:
    """The time of each package, with that of the C functions that it calls."""
    found: dict[str, float] = defaultdict(float)
    stats: Any = pstats.Stats(str(path))
    for (file, _, _), (_, _, own_s, _, callers) in stats.stats.items():
        if file != "~":
            found[_package(file)] += own_s
        elif not callers:
            found[OTHER] += own_s
        for (caller, _, _), (_, _, part_s, _) in callers.items() if file == "~" else ():
            found[_package(caller)] += part_s
    total_s = sum(found.values())
    return {package: spent_s / total_s for package, spent_s in found.items()}


def _package(file: str) -> str:
    name = file.partition("/penstock/")[2].partition("/")[0]
    return name if name in PACKAGES else OTHER


def main() -> None:
    """The broker, with every call that brings a request watched; noted by action when it ends."""
    from penstock.cli.main import main as serve
    from penstock.network.http_connection import HttpConnection

    path = sys.argv.pop(1)
    profiles = {action: cProfile.Profile() for action in ACTIONS}
    answer: Callable[[HttpConnection, bytes], None] = HttpConnection.data_received

    def watched(self: HttpConnection, data: bytes) -> None:
        target = next((action for target, action in TARGETS.items() if target in data), "delete")
        profiles[target].enable()
        try:
            answer(self, data)
        finally:
            profiles[target].disable()

    HttpConnection.data_received = watched  # type: ignore[method-assign]
    try:
        serve()
    finally:
        for action, profile in profiles.items():
            profile.dump_stats(f"{path}-{action}")


if __name__ == "__main__":
    main()

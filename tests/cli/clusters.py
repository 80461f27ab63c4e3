"""Helpers for tests of clusters of processes: which run, where they listen, what they report."""

import asyncio
import contextlib
import json
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

from penstock.client.cluster import KafkaClient
from penstock.client.errors import ConnectionFailed
from penstock.client.metadata import ClusterView
from tests.ports import free_block

from .cli_runner import COMMAND

START_S = 120
STOP_S = 90


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def children_of(pid: int) -> dict[str, int]:
    """The brokers that a process has started: their pids, by node id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (path / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                command = (path / "cmdline").read_text().split("\0")
                if "--node-id" in command:
                    found[command[command.index("--node-id") + 1]] = int(path.name)
    return found


def at_work_in(folder: Path) -> set[int]:
    """The processes that were started with something in a folder."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if f"{folder}/" in (path / "cmdline").read_text(errors="replace") and is_alive(int(path.name)):
                found.add(int(path.name))
    return found


def look_at(bootstrap: str, *topics: str) -> ClusterView | None:
    """The cluster as a broker describes it; None if none can be reached now."""

    async def ask() -> ClusterView:
        async with KafkaClient(bootstrap) as client:
            return await client.refresh(topics)

    try:
        return asyncio.run(ask())
    except ConnectionFailed:
        return None


class DevProcess:
    """`penstock dev --json` on a folder; ended by its own pid."""

    def __init__(self, folder: Path, *options: str, errors: Path | None = None) -> None:
        self.folder = folder
        self.errors = errors or folder.with_name(f"{folder.name}.errors")
        port = free_block()
        command = [COMMAND, "dev", "--json", "--data-dir", str(folder), "--listen", f"127.0.0.1:{port}"]
        command += ["--http", f"127.0.0.1:{port + 10}", *options]
        with self.errors.open("ab") as errors_file:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors_file, text=True)
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            self.end(signal.SIGKILL)
            raise AssertionError(f"the cluster was not ready; it said:\n{self.said}")
        self.summary: dict[str, Any] = json.loads(line)

    @property
    def bootstrap(self) -> str:
        return str(self.summary["bootstrap"])

    @property
    def said(self) -> str:
        return self.errors.read_text()

    @property
    def file(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        except FileNotFoundError:
            return None
        return found

    @property
    def pids(self) -> set[int]:
        """All processes that it said it has started."""
        return {self.summary["coordination"]["pid"], *(broker["pid"] for broker in self.summary["brokers"])}

    def pid_of(self, node_id: int) -> int | None:
        """Of a broker, as the file has it now."""
        found = {broker["node_id"]: broker["pid"] for broker in (self.file or {}).get("brokers", [])}
        return found.get(node_id)

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal, and wait for its end: the exit code."""
        with self._process:
            self._process.send_signal(number)
            return self._process.wait(STOP_S)

    def finish(self) -> None:
        if self._process.poll() is None:
            self.end()

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()

"""A standalone Spark cluster of real processes, a query on it, and the ways in which they die."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import IO

import pyspark
from confluent_kafka import KafkaError, Producer

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
START_S = 90.0
STRIKE_S = 240.0
PACE_S = 0.03
"""How long the source rests after a few rows."""
AFTER_THE_DECISION = "driver after the decision"
CHECKPOINT = "checkpoint"
WAYS = {
    **{"executor": 3, "both executors": 1, "python worker": 3, "driver": 2, "broker": 2},
    **{AFTER_THE_DECISION: 2, CHECKPOINT: 1},
}
"""What goes wrong, and how often compared to the rest."""
MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


def children(pid: int) -> list[int]:
    """The processes that a process has started; none if it is gone."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Cluster:
    """A master and two workers, which start executors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "PYSPARK_PYTHON": sys.executable,
        }
        log = folder / "master.log"
        self._processes = [self._start(log, "master.Master", "--port", "0", "--webui-port", "0")]
        self.master = wait_until(lambda: MASTER.search(log.read_text()), "the master is up", START_S)[1]
        for number in range(2):
            place = folder / f"worker-{number}"
            place.mkdir()
            self._processes.append(
                self._start(
                    folder / f"worker-{number}.log",
                    "worker.Worker",
                    *("--cores", "2", "--memory", "600m", "--webui-port", "0", "--work-dir", str(place)),
                    self.master,
                )
            )

    def _start(self, log: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
        with log.open("ab") as out:
            return subprocess.Popen([*command, *arguments], env=self._environment, stdout=out, stderr=out)

    def executors(self) -> list[int]:
        return [
            pid
            for worker in self._processes[1:]
            for pid in descendants(worker.pid)
            if "CoarseGrainedExecutorBackend" in command_of(pid)
        ]

    def python_workers(self) -> list[int]:
        """The processes that tasks run in: forked by a daemon, one for each task at a time."""
        daemons = [pid for executor in self.executors() for pid in children(executor)]
        return [worker for daemon in daemons for worker in children(daemon)]

    def close(self) -> None:
        for process in reversed(self._processes):
            for pid in list(descendants(process.pid)):
                kill(pid)
            process.kill()
            process.wait()


class Query:
    """The driver process; started again whenever it has ended.

    `command`: how to start it, given where it shall begin if it has no checkpoint.
    """

    def __init__(self, command: Callable[[str], list[str]], checkpoint: Path, log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._position = "earliest"
        self._checkpoint = checkpoint
        self.starts = 0
        self.commits = checkpoint / "commits"
        self.offsets = checkpoint / "offsets"

    def ensure(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command(self._position),
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
                stdout=out,
                stderr=out,
            )

    def kill(self) -> None:
        """The process, its JVM, and what that has started."""
        process, self._process = self._process, None
        if process is None:
            return
        pids = [process.pid, *descendants(process.pid)]
        for pid in pids:
            kill(pid)
        process.wait()

    @staticmethod
    def _last(folder: Path) -> int:
        if not folder.is_dir():
            return -1
        return max((int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=-1)

    @property
    def last_commit(self) -> int:
        """The last batch that Spark knows to be done."""
        return self._last(self.commits)

    def _kill_between_batches(self) -> int:
        """It is stopped as soon as a batch is noted as done, and killed if nothing has begun since; that batch."""
        deadline_s = time.monotonic() + STRIKE_S
        while time.monotonic() < deadline_s:
            self.ensure()
            assert self._process is not None
            before, pids = self.last_commit, [self._process.pid, *descendants(self._process.pid)]
            while self.last_commit == before and time.monotonic() < deadline_s and self._process.poll() is None:
                time.sleep(0.001)
            for pid in pids:
                kill(pid, signal.SIGSTOP)
            last = self.last_commit
            if last > before and last == self._last(self.offsets):
                self.kill()
                return last
            for pid in pids:
                kill(pid, signal.SIGCONT)
        raise AssertionError("no moment was found between a batch and the next")

    def kill_after_a_decision(self) -> None:
        """Have it die after the sink's decision and before Spark's own note of it.

        The note is taken away: that is what the disk would have looked like a moment before.
        """
        last = self._kill_between_batches()
        (self.commits / f".{last}.crc").unlink(missing_ok=True)
        (self.commits / str(last)).unlink()

    def lose_checkpoint(self) -> None:
        """Have it begin anew, as another query, from where it was: its checkpoint says that before it is deleted."""
        last = self._kill_between_batches()
        self._position = (self.offsets / str(last)).read_text().splitlines()[-1]
        shutil.rmtree(self._checkpoint)


class Source:
    """Rows that come at a steady rate, each with a number of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._work, name="source")
        self.count = 0
        self.failed: list[KafkaError] = []
        self._thread.start()

    def _work(self) -> None:
        while not self._enough.is_set():
            for _ in range(5):
                self._producer.produce(self._topic, b"%d" % self.count, b"%d" % self.count, on_delivery=self._done)
                self.count += 1
            self._producer.poll(0)
            self._enough.wait(PACE_S)

    def _done(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.failed.append(error)

    def finish(self) -> int:
        """Stop; how many there are."""
        self._enough.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert not self.failed, self.failed[0]
        return self.count


class Faults:
    """One random fault."""

    def __init__(self, rng: Random, cluster: Cluster, query: Query, broker: BrokerProcess) -> None:
        self._rng = rng
        self._cluster = cluster
        self._query = query
        self._broker = broker
        self.done: Counter[str] = Counter()

    def strike(self, way: str | None = None) -> str:
        """Do it; what it was. None: any."""
        way = way or self._rng.choices(list(WAYS), list(WAYS.values()))[0]
        match way:
            case "executor":
                self._kill_one(self._cluster.executors())
            case "both executors":
                for pid in self._cluster.executors():
                    kill(pid)
            case "python worker":
                self._kill_one(self._cluster.python_workers())
            case "driver":
                self._query.kill()
            case _ if way == AFTER_THE_DECISION:
                self._query.kill_after_a_decision()
            case _ if way == CHECKPOINT:
                self._query.lose_checkpoint()
            case "broker":
                self._broker.kill()
                time.sleep(self._rng.uniform(0, 1))
                self._broker.start()
        self.done[way] += 1
        return way

    def _kill_one(self, pids: list[int]) -> None:
        if pids:
            kill(self._rng.choice(pids))


def tail(stream: IO[str] | Path, lines: int = 40) -> str:
    text = stream.read_text() if isinstance(stream, Path) else stream.read()
    return "\n".join(text.splitlines()[-lines:])

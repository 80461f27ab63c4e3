"""Helpers for tests of the Python API: quick group members, topics, and programs that are killed."""

import itertools
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from confluent_kafka import ConsumerGroupTopicPartitions

import penstock
from penstock import Connection, Message
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver

QUICK: dict[str, Any] = {"heartbeat.interval.ms": 100, "fetch.wait.max.ms": 50}
"""Members hear soon of each other, and hear soon that there is nothing more."""
KILLED: dict[str, Any] = {**QUICK, "session.timeout.ms": 1000}
"""Members that are killed are missed soon."""
IDLE_S = 0.1
"""Nothing more will come: counted from when everything that is there was read, so that it may be short."""

_numbers = itertools.count()


def connect(servers: str, **options: Any) -> Connection:
    return penstock.connect(servers, options={**QUICK, **options.pop("options", {})}, **options)


def new_topic(servers: str, partitions: int = 1, **configs: str) -> str:
    """A topic that no other test uses."""
    name = f"api-{next(_numbers)}"
    ConfluentDriver(servers).create_topic(
        name, partitions, {key.replace("_", "."): value for key, value in configs.items()}
    )
    return name


def new_group() -> str:
    return f"group-{next(_numbers)}"


def numbers(messages: Iterable[Message]) -> list[int]:
    return [message.json() for message in messages]


def all_of(mq: Connection, topic: str) -> list[int]:
    """Everything that a topic holds and that counts."""
    return sorted(numbers(mq.subscribe(topic, idle_timeout_s=IDLE_S)))


def committed(broker: BrokerProcess, group: str, topic: str) -> int | None:
    """The committed offsets of a group."""
    admin = ConfluentDriver(broker.kafka).admin
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return next((each.offset for each in answer.result().topic_partitions if each.topic == topic), None)


def threads() -> int:
    """All threads of this process, librdkafka's too."""
    return len(os.listdir("/proc/self/task"))


class Program:
    """A program of its own that uses the API, talks by lines, and may be killed."""

    def __init__(self, code: str, *arguments: str, folder: Path) -> None:
        path = folder / f"program-{next(_numbers)}.py"
        path.write_text(_PRELUDE + textwrap.dedent(code))
        self._process = subprocess.Popen(
            [sys.executable, str(path), *arguments], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def line(self) -> str:
        """The next line that it says; empty if it has ended."""
        return self._output.readline().strip()

    def lines_until(self, last: str) -> list[str]:
        found = []
        while (line := self.line()) != last:
            assert line, f"it ended after {found} without saying {last!r}"
            found.append(line)
        return found

    def go(self) -> None:
        """Give it a line, if that is what it waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, timeout_s: float = 20) -> tuple[int, list[str]]:
        """Its exit code, and what it had left to say."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        # Through the same buffer as `line`: `communicate` would read past what that has taken already.
        with self._process:
            said = self._output.read()
            self._process.wait(timeout_s)
        return self._process.returncode, said.split("\n")[:-1]


_PRELUDE = f"""
import faulthandler, os, sys, time
import penstock

# One that hangs ends by itself, and says where: the test then fails, and need not be ended with its whole process.
faulthandler.dump_traceback_later(80, exit=True)

def say(what):
    print(what, flush=True)

def connect(servers, **options):
    return penstock.connect(servers, options={KILLED!r}, **options)

"""

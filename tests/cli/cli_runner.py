"""Runs `penstock`: to its end, on a terminal, or until it is interrupted."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.consumer import Consumer
from penstock.client.offsets import log_ranges
from penstock.client.producer import Producer
from penstock.records.build import Record
from tests.clients.waiting import wait_until
from tests.fork_server import PENSTOCK, ForkedProcess, can_fork, run

COMMAND = PENSTOCK
READY = re.compile(r"penstock is ready: kafka (\S+), .* pid (\d+)")
START_S = 90
STDERR = 2
RUN_S = 60


class ServeProcess:
    """`penstock serve` on free ports and a folder of its own; ended by its own pid."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.data_dir = folder / "data"
        command = [COMMAND, "serve", "--data-dir", str(self.data_dir), *options]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warning"]
        self._process = ForkedProcess(command, environment=os.environ, stderr=STDERR)
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        ready = READY.match(self._process.stdout.readline() if readable else "")
        if ready is None:
            self._process.kill()
            raise AssertionError("the broker did not say that it is ready")
        self.bootstrap = ready[1]
        assert int(ready[2]) == self._process.pid

    def stop(self) -> None:
        with self._process:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(RUN_S) == 0


class Direct:
    """Topics and messages through the client library."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create(self, topic: str, partitions: int = 1, **configs: str) -> str:
        async def work() -> None:
            async with KafkaClient(self._bootstrap) as client:
                named = {name.replace("_", "."): value for name, value in configs.items()}
                await Admin(client).create(topic, partitions=partitions, configs=named)

        asyncio.run(work())
        addresses = self._bootstrap.split(",")
        if len(addresses) > 1:  # a broker may hear of it late, and clients soon give up on an unknown topic
            for address in addresses:
                wait_until(lambda address=address: self._knows(address, topic), f"{address} knows {topic}", RUN_S)
        return topic

    @staticmethod
    def _knows(address: str, topic: str) -> bool:
        async def ask() -> bool:
            async with KafkaClient(address) as client:
                return topic in (await client.refresh(None)).topics

        return asyncio.run(ask())

    def publish(self, topic: str, *values: bytes, partition: int = 0, **options: Any) -> None:
        """All in one batch."""

        async def work() -> None:
            async with KafkaClient(self._bootstrap) as client, Producer(client) as producer:
                for value in values:
                    await producer.send(topic, value, partition=partition, **options)

        asyncio.run(work())

    def read(self, topic: str) -> list[Record]:
        """All that a topic holds, partition by partition."""

        async def work() -> list[Record]:
            async with KafkaClient(self._bootstrap) as client:
                held = await log_ranges(client, (await client.topic(topic)).tps)
                consumer = Consumer(client)
                records: list[Record] = []
                for name, span in held.items():
                    consumer.assign({name: span.start})
                    while consumer.position(name) < span.end:
                        records += [record for _, record in await consumer.poll()]
                    consumer.drop(name)
                await consumer.close()
                return records

        return asyncio.run(work())

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.read(topic)]


class Cli:
    def __init__(self, bootstrap: str | None) -> None:
        self.environment = {name: text for name, text in os.environ.items() if name != "PENSTOCK_BOOTSTRAP"}
        if bootstrap is not None:
            self.environment["PENSTOCK_BOOTSTRAP"] = bootstrap

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [COMMAND, *arguments]
        if can_fork(self.environment):
            return run(command, input=stdin, environment=self.environment, timeout=RUN_S)
        return subprocess.run(
            command, input=stdin, capture_output=True, env=self.environment, timeout=RUN_S, check=False
        )

    def ok(self, *arguments: str, stdin: bytes = b"") -> str:
        """What a command that must succeed writes."""
        done = self(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.decode()

    def json(self, *arguments: str, stdin: bytes = b"") -> list[Any]:
        """What a command that must succeed writes with --json, line by line."""
        return [json.loads(line) for line in self.ok(*arguments, "--json", stdin=stdin).splitlines()]

    def refused(self, *arguments: str, code: int, stdin: bytes = b"") -> str:
        """The one line that a command which must fail writes on standard error."""
        done = self(*arguments, stdin=stdin)
        assert done.returncode == code, done
        (line,) = done.stderr.decode().splitlines()
        assert line.startswith("Error: ")
        return line.removeprefix("Error: ")

    def start(self, *arguments: str, stdin: int | None = None) -> subprocess.Popen[bytes] | ForkedProcess:
        """`stdin`: subprocess.PIPE, or None for nothing."""
        if can_fork(self.environment) and arguments[0] != "dev":
            command = [COMMAND, *arguments]
            return ForkedProcess(command, environment=self.environment, stdin=stdin, text=False)
        return subprocess.Popen(
            [COMMAND, *arguments],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )

    def on_terminal(self, *arguments: str, typed: bytes = b"", until: bytes = b"") -> tuple[int, str]:
        """Exit code and screen of a command that has a terminal. `typed` is typed once `until` is on the screen."""
        ours, theirs = pty.openpty()
        environment = self.environment | {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"}
        process = ForkedProcess(
            [COMMAND, *arguments], environment=environment, stdin=os.dup(theirs), stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        screen = b""
        try:
            while True:
                readable, _, _ = select.select([ours], [], [], RUN_S)
                assert readable, f"nothing more came: {screen!r}"
                try:
                    chunk = os.read(ours, 65536)
                except OSError:  # Linux raises this when the last one has closed the other side
                    break
                if not chunk:
                    break
                screen += chunk
                if typed and until in screen:
                    os.write(ours, typed)
                    typed = b""
            return process.wait(RUN_S), screen.decode()
        finally:
            os.close(ours)
            if process.poll() is None:
                process.kill()
                process.wait()


def interrupt(process: subprocess.Popen[bytes] | ForkedProcess) -> tuple[int, bytes, bytes]:
    """Ctrl-C; then the exit code and what was written after the last read."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=RUN_S)
    return process.returncode, out, err


def table(text: str) -> list[list[str]]:
    """The cells of a table, header first; cells hold no double spaces."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]

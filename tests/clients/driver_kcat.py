"""kcat, the command line client (librdkafka).

Not possible with kcat, and so not tested with it: making a topic other than by writing to it, altering settings,
trimming, deleting, timestamps of one's own, and headers that differ from message to message.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from itertools import groupby

from .drivers import COMPRESSIONS, Message, Outgoing
from .waiting import PATIENCE_S

KEY_DELIMITER = "|"


class KcatDriver:
    name = "kcat"
    compressions = COMPRESSIONS
    is_installed = shutil.which("kcat") is not None

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """kcat's output; it must not fail."""
        done = subprocess.run(
            ["kcat", "-b", self.bootstrap, "-m", "10", *arguments],
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """By asking for it, on a broker that then makes it; `partitions` must be the broker's default."""
        self.run("-L", "-J", "-t", topic, "-X", "allow.auto.create.topics=true")

    def produce(
        self, topic: str, messages: Sequence[Outgoing], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        """One run for neighbours with the same headers. Empty keys and values are sent as null (-Z)."""
        for (partition, headers), alike in groupby(messages, lambda message: (message.partition, message.headers)):
            lines = [self._line(message) for message in alike]
            named = [argument for name, value in headers for argument in ("-H", f"{name}={value.decode()}")]
            self.run(
                *("-P", "-t", topic, "-p", str(partition), "-K", KEY_DELIMITER, "-Z"),
                *("-X", f"enable.idempotence={str(idempotent).lower()}"),
                *("-X", f"compression.codec={compression}"),
                *("-X", "acks=all"),
                *("-X", "message.max.bytes=2000000"),
                *named,
                stdin=b"\n".join(lines),
            )

    @staticmethod
    def _line(message: Outgoing) -> bytes:
        assert message.timestamp_ms is None, "kcat cannot set timestamps"
        assert message.key != b"", "kcat cannot send an empty key beside null ones"
        assert message.value != b"", "kcat cannot send an empty value beside null ones"
        return (message.key or b"") + KEY_DELIMITER.encode() + (message.value or b"")

    def consume(self, topic: str, start: int, count: int, partition: int = 0, *options: str) -> list[Message]:
        return self._consume(topic, str(start), count, partition, *options)

    def consume_from_start(self, topic: str, count: int, partition: int = 0) -> list[Message]:
        return self._consume(topic, "beginning", count, partition)

    def consume_from_time(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        return self._consume(topic, f"s@{timestamp_ms}", count, 0)

    def _consume(self, topic: str, start: str, count: int, partition: int, *options: str) -> list[Message]:
        out = self.run(*self._reading(topic, start, count, partition), *options)
        return [_message(line) for line in out.splitlines()]

    @staticmethod
    def _reading(topic: str, start: str, count: int, partition: int) -> list[str]:
        place = ["-t", topic, "-p", str(partition), "-o", start, "-c", str(count)]
        return ["-C", "-J", "-u", *place, "-X", "fetch.wait.max.ms=100"]

    def consume_new(self, topic: str, count: int, when_ready: Callable[[], None]) -> list[Message]:
        command = ["kcat", "-b", self.bootstrap, *self._reading(topic, "end", count, 0)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert any(b"Reached end of topic" in line for line in iter(process.stderr.readline, b""))
            when_ready()
            out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        return [_message(line) for line in out.splitlines()]

    def range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        found = self._query(topic, partition, timestamp_ms)
        return None if found < 0 else found

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """kcat's answer is `topic [0] offset 7`."""
        out = self.run("-Q", "-t", f"{topic}:{partition}:{timestamp_ms}")
        return int(out.split()[-1])


def _message(line: bytes) -> Message:
    found = json.loads(line)
    names = iter(found.get("headers", ()))
    headers = tuple((name, value.encode()) for name, value in zip(names, names, strict=True))
    key, value = found["key"], found["payload"]
    return Message(
        found["offset"],
        found["ts"],
        None if key is None else key.encode(),
        None if value is None else value.encode(),
        headers,
    )

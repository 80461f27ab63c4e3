"""What the loads need of a server that speaks the Kafka protocol."""

import itertools
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

from bench.blocking_client import BlockingClient
from bench.frames import TOPIC_NAME_BYTES, Shape
from bench.process import Process

_numbers: Final = itertools.count(1)


def topic_name() -> str:
    """A name that was not used before, as long as all others."""
    return f"b{next(_numbers):0{TOPIC_NAME_BYTES - 1}d}"


class Broker(Protocol):
    """A server under load. The floor is one too, with a single topic that is set at its start."""

    name: str

    @property
    def pid(self) -> int: ...

    @property
    def port(self) -> int: ...

    def make_topic(self, shape: Shape, partitions: int) -> str: ...

    def drop_topic(self, topic: str) -> None: ...

    def records_in(self, topic: str, partitions: int) -> int: ...


class KafkaBroker(ABC):
    """A real broker in a process of its own."""

    name = ""
    topic_configs: Mapping[str, str] = MappingProxyType({})

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: Process | None = None
        self.ready_s = 0.0
        """From the spawn to the first answer, and to the ready line of a broker that prints one."""

    @property
    def process(self) -> Process:
        assert self._process is not None, f"{self.name} is not running"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return self.process.port

    @abstractmethod
    def start(self) -> None:
        """Start it and wait for its first answer."""

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.stop(number)
            self._process = None

    def make_topic(self, shape: Shape, partitions: int) -> str:
        name = topic_name()
        with BlockingClient(self.port) as client:
            client.create_topic(name, partitions, self.topic_configs)
        return name

    def drop_topic(self, topic: str) -> None:
        with BlockingClient(self.port) as client:
            client.delete_topic(topic)

    def records_in(self, topic: str, partitions: int) -> int:
        with BlockingClient(self.port) as client:
            return sum(client.end_offsets(topic, partitions))

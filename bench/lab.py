"""What a question works with: servers, a scratch folder, a scale, and a log of its progress."""

import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from bench import runs
from bench.cache import NotRun
from bench.peers.floor import FloorServer
from bench.peers.kafka import ApacheKafka
from bench.peers.nats import Nats
from bench.penstock import Penstock
from bench.runs import Window
from bench.scale import GB, Scale


class Server(Protocol):
    """What can be started and stopped."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=Server)
Loads = Callable[[ApacheKafka], Generator[object, None, None]]
"""Does one thing after the other with a server, and can be ended after each."""


class Lab:
    """Servers are started here and stopped here. Kafka is kept, once it is warm, for the questions that follow."""

    def __init__(self, folder: Path, scale: Scale, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.scale = scale
        self.say = say
        self._kafka: ApacheKafka | None = None
        self._kafka_knows: set[str] = set()
        self._folders = 0

    def fresh_folder(self, name: str) -> Path:
        self._folders += 1
        folder = self.folder / f"{name}-{self._folders}"
        folder.mkdir()
        return folder

    def need_disk(self, size_bytes: int) -> None:
        """NotRun, unless twice that is free."""
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < 2 * size_bytes:
            raise NotRun(f"{free_bytes / GB:.0f} GB of disk are free, {2 * size_bytes / GB:.0f} are needed")

    @property
    def window(self) -> Window:
        return Window(seconds=self.scale.window_s, ramp_s=self.scale.ramp_s, bytes_max=self.scale.bytes_max)

    @contextmanager
    def running(self, name: str, make: Callable[[Path], S]) -> Iterator[S]:
        """A server in a folder of its own, which goes when it is stopped."""
        folder = self.fresh_folder(name)
        server = make(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def penstock(
        self, settings: Mapping[str, str] = MappingProxyType({}), credentials: str = ""
    ) -> AbstractContextManager[Penstock]:
        return self.running("penstock", lambda folder: Penstock(folder, settings, credentials=credentials))

    @contextmanager
    def floor(self) -> Iterator[FloorServer]:
        folder = self.fresh_folder("floor")
        server = FloorServer(folder)
        try:
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def nats(self) -> AbstractContextManager[Nats]:
        return self.running("nats", Nats)

    def kafka(self) -> ApacheKafka:
        """Apache Kafka, warm for produce and fetch; `close_kafka` stops it."""
        return self.warm_kafka("produce and fetch", self._produce_and_fetch)

    def warm_kafka(self, what: str, loads: Loads) -> ApacheKafka:
        """Apache Kafka after a while of these loads, one after the other: the JIT compiles what it sees often."""
        try:
            if self._kafka is None:
                self.say("starting Apache Kafka")
                self._kafka = ApacheKafka(self.fresh_folder("kafka"))
                self._kafka.start()
            if what not in self._kafka_knows:
                self._warm(self._kafka, what, loads)
        except BaseException:
            self.close_kafka()
            raise
        return self._kafka

    def _warm(self, server: ApacheKafka, what: str, loads: Loads) -> None:
        end_s = time.monotonic() + self.scale.warm_s
        while (left_s := end_s - time.monotonic()) > 0:
            self.say(f"warming Kafka, {what}: {left_s:.0f} s left")
            with closing(loads(server)) as each:
                for _ in each:
                    if time.monotonic() > end_s:
                        break
        self._kafka_knows.add(what)

    def _produce_and_fetch(self, server: ApacheKafka) -> Generator[object, None, None]:
        window = Window(seconds=min(2.0, self.scale.warm_s / 15), ramp_s=0.0, bytes_max=self.scale.bytes_max)
        for shape, fill_bytes in zip(runs.SHAPES, self.scale.fill_bytes, strict=True):
            for acks in (1, -1):
                runs.produce(server, shape, acks, window, self.folder)
            with runs.filled(server, shape, fill_bytes, self.folder) as source:
                yield runs.fetch(source, window, self.folder)

    def close_kafka(self) -> None:
        if self._kafka is not None:
            self._kafka.stop()
            shutil.rmtree(self._kafka.folder, ignore_errors=True)
            self._kafka = None
            self._kafka_knows.clear()

"""What a question works with: servers, a scratch folder, a scale, and someone to tell how far it is."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import runs
from bench.cache import NotRun
from bench.peers.floor import FloorServer
from bench.peers.kafka import ApacheKafka
from bench.peers.nats import Nats
from bench.penstock import Penstock
from bench.runs import Window
from bench.scale import GB, Scale


class Lab:
    """Servers are started here and stopped here. Kafka is kept, once it is warm, for the questions that follow."""

    def __init__(self, folder: Path, scale: Scale, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.scale = scale
        self.say = say
        self._kafka: ApacheKafka | None = None
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
    def penstock(self) -> Iterator[Penstock]:
        folder = self.fresh_folder("penstock")
        server = Penstock(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def floor(self) -> Iterator[FloorServer]:
        folder = self.fresh_folder("floor")
        server = FloorServer(folder)
        try:
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def nats(self) -> Iterator[Nats]:
        folder = self.fresh_folder("nats")
        server = Nats(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def kafka(self) -> ApacheKafka:
        """Apache Kafka, warm; `close` stops it."""
        if self._kafka is None:
            server = ApacheKafka(self.fresh_folder("kafka"))
            try:
                self.say("starting Apache Kafka")
                server.start()
                self._warm(server)
            except BaseException:
                server.stop()
                raise
            self._kafka = server
        return self._kafka

    def _warm(self, server: ApacheKafka) -> None:
        """Every load in turn, until the time is up: the JIT compiles what it sees often."""
        window = Window(seconds=min(2.0, self.scale.warm_s / 15), ramp_s=0.0, bytes_max=self.scale.bytes_max)
        end_s = time.monotonic() + self.scale.warm_s
        while time.monotonic() < end_s:
            for shape, fill_bytes in zip(runs.SHAPES, self.scale.fill_bytes, strict=True):
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    break
                self.say(f"warming Kafka: {left_s:.0f} s left")
                for acks in (1, -1):
                    runs.produce(server, shape, acks, window, self.folder)
                with runs.filled(server, shape, fill_bytes, self.folder) as source:
                    runs.fetch(source, window, self.folder)

    def close_kafka(self) -> None:
        if self._kafka is not None:
            self._kafka.stop()
            shutil.rmtree(self._kafka.folder, ignore_errors=True)
            self._kafka = None

"""The floor as a server process: one process a topic, so that every run writes a fresh file."""

import sys
from pathlib import Path

from bench.broker import topic_name
from bench.cache import BENCH
from bench.frames import Shape, floor_layout
from bench.process import Process, free_port


class FloorServer:
    """Runs bench/floor.py. It answers by position, so there is only one topic, and partitions are ignored."""

    name = "floor"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None
        self._records_per_byte = 0.0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        assert self._process is not None
        return self._process.port

    def make_topic(self, shape: Shape, partitions: int) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        topic, port, layout = topic_name(), free_port(), self._folder / "layout.json"
        floor_layout(topic, shape).save(layout)
        self._records_per_byte = shape.records / shape.batch_bytes
        command: list[str | Path] = [sys.executable, "-m", "bench.floor", layout, str(port), self._folder / topic]
        self._process = Process(command, self._folder / "stderr", port, {"PYTHONPATH": str(BENCH.parent)})
        self._process.wait_for_line()
        return topic

    def drop_topic(self, topic: str) -> None:
        self.stop()
        (self._folder / topic).unlink(missing_ok=True)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def records_in(self, topic: str, partitions: int) -> int:
        return round((self._folder / topic).stat().st_size * self._records_per_byte)

"""Penstock itself, as a user runs it: `penstock serve` with nothing set but where, unless a question says more."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bench.broker import KafkaBroker
from bench.process import Process, free_port


class Penstock(KafkaBroker):
    name = "Penstock"
    forgets_deletions = False

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = MappingProxyType({}),
        node_id: int = 1,
        store: str = "",
        credentials: str = "",
    ) -> None:
        """`store`: where its cluster is kept, if it is not alone. `credentials`: who may use its queues, as YAML."""
        super().__init__(folder)
        self._settings = settings
        self._node_id = node_id
        self._store = store
        self._credentials = credentials
        self.http_port = 0

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        port, self.http_port = free_port(), free_port()
        command: list[str | Path] = [
            Path(sys.executable).parent / "penstock",
            "serve",
            "--data-dir",
            self.folder / "data",
            "--listen",
            f"127.0.0.1:{port}",
            "--http",
            f"127.0.0.1:{self.http_port}",
            "--node-id",
            str(self._node_id),
            "--log-level",
            "warning",
        ]
        if self._store:
            command += ["--store", self._store]
        if self._credentials:
            keys = self.folder / "keys.yaml"
            keys.write_text(self._credentials)
            command += ["--credentials", keys]
        if self._settings:
            config = self.folder / "penstock.toml"
            config.write_text(
                "\n".join(["[broker]", *(f'"{name}" = "{value}"' for name, value in self._settings.items())])
            )
            command += ["--config", config]
        self._process = Process(command, self.folder / "stderr", port)
        self._process.wait_for_answer()
        self.ready_s = self._process.wait_for_line()

    def drop_topic(self, topic: str) -> None:
        """Waits until the files are gone: to remove them is no part of the next run."""
        super().drop_topic(topic)
        give_up_s = time.monotonic() + 60
        data = self.folder / "data"
        while (data / "logs" / topic).exists() or any(data.glob("trash/*/*")):
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"the files of {topic} are still there")
            time.sleep(0.05)

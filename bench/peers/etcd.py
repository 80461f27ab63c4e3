"""etcd, for clusters of Penstock: one server, since what is measured is not it."""

import shutil
from pathlib import Path

from bench.cache import NotRun
from bench.process import Process, free_port


class Etcd:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None

    def start(self) -> str:
        """The address that brokers take."""
        program = shutil.which("etcd")
        if program is None:
            raise NotRun("etcd is not installed: brokers of one cluster share it")
        port, peers = free_port(), f"http://127.0.0.1:{free_port()}"
        clients = f"http://127.0.0.1:{port}"
        command: list[str | Path] = [
            program,
            "--data-dir",
            self._folder / "etcd",
            "--listen-client-urls",
            clients,
            "--advertise-client-urls",
            clients,
            "--listen-peer-urls",
            peers,
            "--initial-advertise-peer-urls",
            peers,
            "--initial-cluster",
            f"default={peers}",
        ]
        self._process = Process(command, self._folder / "etcd.log", port)
        self._process.wait_for_port()
        return f"etcd://127.0.0.1:{port}/bench"

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

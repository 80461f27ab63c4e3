"""moto's server, from PyPI: an SQS that tests use, in an environment of its own, since it brings much along."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.cache import NotRun, cache_folder
from bench.process import Process, free_port

VERSION: Final = "5.2.5"
INSTALL_S_MAX: Final = 600


class Moto:
    name = "moto"
    forgets_deletions = True  # its threads write one list, without a lock

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def http_port(self) -> int:
        assert self._process is not None
        return self._process.port

    def start(self) -> None:
        """It says on stderr, as it does by itself, what it was asked."""
        python = _environment()
        self._folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = Process(command, self._folder / "stderr", port)
        self._process.wait_for_port()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


def _environment() -> Path:
    """The interpreter of an environment that has moto."""
    folder = cache_folder("moto") / VERSION
    python = folder / "bin" / "python"
    if not folder.exists():
        fresh = folder.with_suffix(".new")
        _run([sys.executable, "-m", "venv", "--clear", str(fresh)])
        pip = [str(fresh / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, f"moto[server]=={VERSION}"])
        fresh.rename(folder)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    if done.returncode:
        raise NotRun(f"moto {VERSION} cannot be installed: {(done.stdout + done.stderr)[-300:]}")

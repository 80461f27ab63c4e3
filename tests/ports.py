"""Ports for servers whose ports are set before they listen.

They lie below those that the system gives to outgoing connections, of which one could take a port in the moment
before its server does, and below those of clusters (tests/cli/clusters.py). Each is kept by a locked file for as long
as this process lives: no other worker takes it.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from random import SystemRandom
from typing import IO

CHOICE = range(10_000, 20_000)
_folder = Path(tempfile.gettempdir(), f"penstock-test-ports-{os.getuid()}")
_kept: list[IO[str]] = []


def free_port() -> int:
    """Returns a port of 127.0.0.1 that no process listens on, and that no other test gets."""
    _folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        port = SystemRandom().choice(CHOICE)
        mark = (_folder / str(port)).open("w")
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.create_server(("127.0.0.1", port)):
                pass
        except OSError:
            mark.close()
            continue
        _kept.append(mark)
        return port

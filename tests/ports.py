"""Ports for servers whose ports are set before they listen, and stay the same when they restart.

They lie below those that the system gives to outgoing connections and to servers that let it choose, of which one
could take a port while its server is down. Each is reserved by a lock on a byte of a file for as long as this process
lives: no other process of the tests takes it.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path
from random import SystemRandom
from typing import IO

BLOCK = 20
SINGLE = range(10_000, 20_000)
BLOCKS = range(20_000, 32_000, BLOCK)
_folder = Path(tempfile.gettempdir(), f"penstock-test-ports-{os.getuid()}")
_locks: list[tuple[int, IO[str]]] = []
"""The file of locks with the process that opened it: a forked process does not inherit the locks."""
_tried: set[int] = set()


def free_port() -> int:
    """Returns a port of 127.0.0.1 that no process listens on, and that no other test gets."""
    return _reserve(SINGLE, 1)


def free_block() -> int:
    """Returns the first of `BLOCK` such ports."""
    return _reserve(BLOCKS, BLOCK)


def _reserve(choice: range, count: int) -> int:
    if not _locks or _locks[0][0] != os.getpid():
        _folder.mkdir(mode=0o700, exist_ok=True)
        _locks[:] = [(os.getpid(), (_folder / "locks").open("a"))]
        _tried.clear()
    left = [port for port in choice if port not in _tried]
    SystemRandom().shuffle(left)
    for port in left:
        try:
            fcntl.lockf(_locks[0][1], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except BlockingIOError:
            continue
        _tried.add(port)  # also if a process listens there: a second lock of this process would succeed
        if all(_is_free(each) for each in range(port, port + count)):
            return port
    raise AssertionError(f"all ports of {choice} are taken")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False

"""File descriptors: segments and connections share them. What can be refused leaves some to what cannot."""

import os
import resource
from enum import IntEnum
from typing import Final

SPARE_MIN = 16
_PROC: Final = "/proc/self/fd"
_OPEN: Final = _PROC if os.path.exists(_PROC) else "/dev/fd"


class Leave(IntEnum):
    """How many parts of the descriptors are left free, by what wants one. A part is a twentieth."""

    NEW_FILES = 4
    """Of logs that are new, and segments that could go on growing instead."""
    KAFKA_CONNECTIONS = 2
    HTTP_CONNECTIONS = 1
    """So health checks and metrics are answered when there are no descriptors for clients."""


def limit() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def is_scarce(descriptor: int, leave: Leave) -> bool:
    """Whether a descriptor that was just made is one of those that are left to others."""
    # A new descriptor has the lowest free number: where the kernel does not tell how many are in use, it is a guess.
    return max(descriptor + 1, _told_in_use()) > _bound(leave)


def room(leave: Leave) -> int:
    """How many may be made now; 0 if those that there are, are left to others."""
    try:
        in_use = _told_in_use() or len(os.listdir(_OPEN))
    except OSError:  # none is left to list them with
        return 0
    return max(0, _bound(leave) - in_use)


def _told_in_use() -> int:
    """How many descriptors are in use, in no time; 0 if the kernel does not tell (Linux does from 6.2 on)."""
    return os.stat(_PROC).st_size if _OPEN == _PROC else 0


def _bound(leave: Leave) -> int:
    most = limit()
    return most - leave * max(SPARE_MIN, most // 20)

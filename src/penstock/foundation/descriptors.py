"""File descriptors, which segments and connections share. Those that can be refused leave some to those that cannot.

A new descriptor is the lowest free number, so its number tells how many are in use.
"""

import os
import resource
from enum import IntEnum

SPARE_MIN = 16


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
    return descriptor >= _bound(leave)


def room(leave: Leave) -> int:
    """How many may be made now; 0 if those that there are, are left to others."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    os.close(descriptor)
    return max(0, _bound(leave) - descriptor)


def _bound(leave: Leave) -> int:
    most = limit()
    return most - leave * max(SPARE_MIN, most // 20)

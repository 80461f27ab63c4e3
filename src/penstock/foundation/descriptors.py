"""File descriptor limits: optional files and new connections leave a reserve for more important uses."""

import os
import resource
from enum import IntEnum
from typing import Final

SPARE_MIN = 16
_PROC: Final = "/proc/self/fd"
_OPEN: Final = _PROC if os.path.exists(_PROC) else "/dev/fd"


class Reserve(IntEnum):
    """The part of the file descriptor limit, in twentieths, that a kind of use must leave free for other uses."""

    NEW_FILES = 4
    """New logs and segments must leave 4/20 of the file descriptors free. Otherwise the creation of a log is
    postponed, and an active segment grows beyond its size limit."""
    KAFKA_CONNECTIONS = 2
    HTTP_CONNECTIONS = 1
    """New HTTP connections leave 1/20 of the file descriptors free: less than Kafka connections, so that health
    checks and metrics work when Kafka connections have reached their limit."""


def limit() -> int:
    """Returns the maximum number of file descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def is_scarce(descriptor: int, reserve: Reserve) -> bool:
    """Returns whether, with `descriptor` just opened, fewer file descriptors are free than the reserve requires."""
    # A new descriptor has the lowest free number: an estimate if the kernel does not report how many are in use.
    return max(descriptor + 1, _count_in_use()) > _bound(reserve)


def available(reserve: Reserve) -> int:
    """Returns how many file descriptors may be opened now so that the reserve stays free; 0 if none."""
    try:
        in_use = _count_in_use() or len(os.listdir(_OPEN))
    except OSError:  # no descriptor left to list them
        return 0
    return max(0, _bound(reserve) - in_use)


def _count_in_use() -> int:
    """Returns how many descriptors are in use, in constant time; 0 if the kernel does not tell (before Linux 6.2)."""
    return os.stat(_PROC).st_size if _OPEN == _PROC else 0


def _bound(reserve: Reserve) -> int:
    total = limit()
    return total - reserve * max(SPARE_MIN, total // 20)

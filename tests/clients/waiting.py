"""Waits until a condition holds, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0
"""Far more than anything here takes, so that a slow machine does not fail a test."""


def wait_until(
    look: Callable[[], T], what: str, timeout_s: float = PATIENCE_S, pause_s: float = 0.02, *, seen: object = None
) -> T:
    """The first true value that `look` returns. AssertionError, naming `what`, if there is none in time.

    `seen`: something to show then, as it is at that moment.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        more = "" if seen is None else f", {seen!r}"
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s in vain for: {what} (last: {found!r}{more})"
        time.sleep(pause_s)

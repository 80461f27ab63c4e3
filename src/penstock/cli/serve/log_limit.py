"""A log that one trouble cannot fill: of each kind of line so many in a while, and then how many were left out."""

import logging
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 100
WINDOW_S: Final = 10.0


class Kind:
    """Lines that differ in their values only."""

    __slots__ = ("left_out", "lines", "until_s")

    def __init__(self) -> None:
        self.until_s = 0.0
        self.lines = 0
        self.left_out = 0


class LogBounds(logging.Filter):
    """Lets lines through, or not. There are as many kinds as there are calls of a logger in the program."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._kinds: dict[tuple[str, int], Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = self._kinds.setdefault((record.pathname, record.lineno), Kind())
        now_s = self._monotonic_s()
        if now_s >= kind.until_s:
            kind.until_s, kind.lines = now_s + WINDOW_S, 0
        if kind.lines == LINES_MAX:
            kind.left_out += 1
            return False
        kind.lines += 1
        if kind.left_out:
            record.msg, kind.left_out = f"{record.msg} lines_left_out={kind.left_out}", 0
        return True

"""Rate limit of log lines: 100 lines per log statement in 10 s; a later line tells how many were suppressed."""

import logging
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 100
WINDOW_S: Final = 10.0


class _StatementCount:
    """How many lines one log statement has written in the current 10 s window, and how many were suppressed."""

    __slots__ = ("left_out", "lines", "until_s")

    def __init__(self) -> None:
        self.until_s = 0.0
        self.lines = 0
        self.left_out = 0


class LogRateLimit(logging.Filter):
    """A logging filter that suppresses lines of a log statement above LINES_MAX per WINDOW_S seconds."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._statements: dict[tuple[str, int], _StatementCount] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        statement = self._statements.setdefault((record.pathname, record.lineno), _StatementCount())
        now_s = self._monotonic_s()
        if now_s >= statement.until_s:
            statement.until_s, statement.lines = now_s + WINDOW_S, 0
        if statement.lines == LINES_MAX:
            statement.left_out += 1
            return False
        statement.lines += 1
        if statement.left_out:
            record.msg, statement.left_out = f"{record.msg} lines_left_out={statement.left_out}", 0
        return True

"""The error for an invalid filter expression of a view, with the position of the problem."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

_SHOWN: int = 60
"""Number of characters of an expression shown before and after the error position."""


class BadExpression(PenstockError):
    """The filter expression of a view (filtered virtual topic) is not valid. The error message shows the position:

    there is no function 'upper' in a view; compare fields with values
      upper(tag) = 'EU'
      ^^^^^
    """

    code = ErrorCode.INVALID_CONFIG

    def __init__(self, problem: str, text: str, start: int = 0, end: int | None = None) -> None:
        self.problem = problem
        self.start = start
        self.end = max(start + 1, len(text) if end is None else end)
        super().__init__(f"{problem}\n{marked(text, self.start, self.end)}")


def marked(text: str, start: int, end: int) -> str:
    """Returns the text of an expression on one line, and below it a line that underlines `start` to `end`. A long
    text is cut around this position."""
    first = max(0, start - _SHOWN)
    last = min(len(text), max(end, start + 1) + _SHOWN)
    before, after = "..." if first else "", "..." if last < len(text) else ""
    line = "".join(each if each.isprintable() else " " for each in text[first:last])
    width = max(1, min(end, last) - start)
    return f"  {before}{line}{after}\n  {' ' * (len(before) + start - first)}{'^' * width}"

"""What is wrong with an expression, and where."""

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

_SHOWN: int = 60
"""Characters of an expression that are shown on either side of the place."""


class BadExpression(PenstockError):
    """An expression that is not in the language. Its message shows the place:

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
    """A line of the text, and under it the place; of a long one only what is around it."""
    first = max(0, start - _SHOWN)
    last = min(len(text), max(end, start + 1) + _SHOWN)
    before, after = "..." if first else "", "..." if last < len(text) else ""
    line = "".join(each if each.isprintable() else " " for each in text[first:last])
    width = max(1, min(end, last) - start)
    return f"  {before}{line}{after}\n  {' ' * (len(before) + start - first)}{'^' * width}"

"""Runs recursive functions without the stack of the interpreter, so that deep schemas cannot exhaust it.

A recursive function is written as a generator: it yields the generator of each call, is sent the result, and returns
its own. Deep nesting then takes heap, not stack; Python stops at 1,000 nested calls, and a schema may be as deep.
"""

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Any, Any, T]
"""A recursive function under way: yields the calls it makes, and returns T."""


def run(call: Steps[T]) -> T:
    """Runs a recursive function, with all the calls that it makes, and returns its result."""
    stack: list[Steps[Any]] = [call]
    result: Any = None
    while stack:
        try:
            called = stack[-1].send(result)
        except StopIteration as end:
            stack.pop()
            result = end.value
        else:
            stack.append(called)
            result = None
    returned: T = result
    return returned

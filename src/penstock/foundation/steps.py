"""Interruptible work: a generator that yields between steps and returns its result. Pure."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Generator type of interruptible work; `TimeSlices.run` runs it a few milliseconds at a time."""


def run_steps(steps: Steps[T]) -> T:
    """Runs interruptible work to its end without interruption, and returns its result.

    >>> def work():
    ...     yield
    ...     return 42
    >>> run_steps(work())
    42
    """
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result

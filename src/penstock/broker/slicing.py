"""Answers that are large because the broker holds much: made at once where they are small, else in time slices."""

from collections.abc import Awaitable, Iterable, Iterator
from typing import Final, TypeVar

from penstock.broker.broker import Broker
from penstock.foundation.steps import Steps, run_steps

T = TypeVar("T")

INLINE_ELEMENTS: Final = 500
"""Elements of an answer that are made without a break: about a millisecond."""
STEP_MASK: Final = 63


def make_answer(broker: Broker, elements: int, steps: Steps[T]) -> T | Awaitable[T]:
    """Runs the steps that make an answer of about so many elements."""
    return run_steps(steps) if elements <= INLINE_ELEMENTS else broker.slices.run(steps)


def paced(items: Iterable[T]) -> Iterator[T | None]:
    """Yields None now and then between items: the place for a break."""
    for number, item in enumerate(items, 1):
        yield item
        if number & STEP_MASK == 0:
            yield None

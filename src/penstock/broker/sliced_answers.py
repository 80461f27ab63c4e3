"""Answers that are large because the broker holds much: made at once where they are small, else in time slices."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar

from penstock.broker.broker import Broker
from penstock.foundation.steps import Steps, run_steps
from penstock.foundation.time_slices import SLICE_S

T = TypeVar("T")

INLINE_ELEMENTS: Final = 500
"""Elements of an answer that are made without a break: about a millisecond."""
STEP_MASK: Final = 63


def make_answer(broker: Broker, elements: int, steps: Steps[T]) -> T | Awaitable[T]:
    """Runs the steps that make an answer of about so many elements."""
    return run_steps(steps) if elements <= INLINE_ELEMENTS else broker.slices.run(steps)


def in_turns(broker: Broker, items: Iterable[T], act: Callable[[T], object]) -> Callable[[], None]:
    """Does something with each item: with some now, with others in the next turns of the loop, a few milliseconds at
    a time. Returns what keeps the rest from being done."""
    left = iter(items)
    stop = _nothing

    def go_on() -> None:
        nonlocal stop
        until_s = broker.clock.monotonic_s() + SLICE_S
        for item in left:
            act(item)
            if broker.clock.monotonic_s() >= until_s:
                stop = broker.timer(0, go_on)
                return

    go_on()
    return lambda: stop()


def _nothing() -> None:
    """There is nothing left to stop."""


def paced(items: Iterable[T]) -> Iterator[T | None]:
    """Yields None now and then between items: the place for a break."""
    for number, item in enumerate(items, 1):
        yield item
        if number & STEP_MASK == 0:
            yield None

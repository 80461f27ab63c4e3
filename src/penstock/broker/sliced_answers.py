"""Builds large responses in time slices, and small responses at once."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar

from penstock.broker.broker import Broker
from penstock.foundation.steps import Steps, run_steps
from penstock.foundation.time_slices import SLICE_S

T = TypeVar("T")

INLINE_ELEMENTS: Final = 500
"""Maximum number of elements of a response that is built without time slices: about a millisecond of work."""
STEP_MASK: Final = 63


def make_answer(broker: Broker, elements: int, steps: Steps[T]) -> T | Awaitable[T]:
    """Returns the generator's result; if there are many `elements`, an awaitable that runs it in time slices."""
    return run_steps(steps) if elements <= INLINE_ELEMENTS else broker.slices.run(steps)


def run_in_slices(broker: Broker, items: Iterable[T], act: Callable[[T], object]) -> Callable[[], None]:
    """Calls `act` for each item: some now, the others in later iterations of the event loop, a few milliseconds at
    a time. Returns a function that cancels the remaining calls."""
    left = iter(items)
    stop = _noop

    def run_slice() -> None:
        nonlocal stop
        until_s = broker.clock.monotonic_s() + SLICE_S
        for item in left:
            act(item)
            if broker.clock.monotonic_s() >= until_s:
                stop = broker.timer(0, run_slice)
                return

    run_slice()
    return lambda: stop()


def _noop() -> None:
    pass


def with_breaks(items: Iterable[T]) -> Iterator[T | None]:
    """Yields the items, and None after every 64 items, where the caller may pause."""
    for number, item in enumerate(items, 1):
        yield item
        if number & STEP_MASK == 0:
            yield None

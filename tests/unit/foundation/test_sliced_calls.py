"""Callbacks that run in time slices."""

from collections.abc import Callable

import pytest

from penstock.foundation.sliced_calls import SlicedCalls
from penstock.foundation.time_slices import SLICE_S


class Loop:
    """A loop whose clock is moved by the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[Callable[[], None]] = []
        self.calls = SlicedCalls(lambda: self.now_s, self._timer)
        self.ran: list[int] = []

    def _timer(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        assert seconds == 0
        self.due.append(action)
        return lambda: self.due.remove(action)

    def iterate(self) -> list[int]:
        """One iteration of the loop; what has run in it."""
        due, self.due, self.ran = self.due, [], []
        for action in due:
            action()
        return self.ran

    def add(self, number: int, takes_s: float = 0.0) -> Callable[[], None]:
        def run() -> None:
            self.ran.append(number)
            self.now_s += takes_s

        return self.calls.add(run)


def test_short_calls_run_in_the_next_iteration_in_order() -> None:
    loop = Loop()
    for number in range(100):
        loop.add(number)
    assert loop.ran == []
    assert loop.iterate() == list(range(100))
    assert loop.due == [], "nothing is left to do"
    loop.add(7)
    assert loop.iterate() == [7]


def test_an_iteration_ends_when_its_slice_is_over() -> None:
    loop = Loop()
    for number in range(7):
        loop.add(number, SLICE_S / 3)
    assert [loop.iterate() for _ in range(4)] == [[0, 1, 2], [3, 4, 5], [6], []]


def test_calls_added_meanwhile_run_after_the_others() -> None:
    loop = Loop()
    loop.add(0, SLICE_S)
    loop.add(1, SLICE_S)
    assert loop.iterate() == [0]
    loop.add(2)
    assert loop.iterate() == [1]
    assert loop.iterate() == [2]


def test_cancelled_calls_do_not_run() -> None:
    loop = Loop()
    take_back = loop.add(0)
    loop.add(1)
    take_back()
    take_back()
    assert loop.iterate() == [1]
    loop.add(2)()
    assert loop.iterate() == []


def test_a_failing_call_does_not_block_the_others() -> None:
    loop = Loop()

    def fail() -> None:
        raise ValueError("a mistake")

    loop.calls.add(fail)
    loop.add(1)
    with pytest.raises(ValueError, match="a mistake"):
        loop.iterate()
    assert loop.iterate() == [1]

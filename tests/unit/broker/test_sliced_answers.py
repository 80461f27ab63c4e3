"""Work on many items in slices of a few milliseconds."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from penstock.broker.broker import Broker
from penstock.broker.sliced_answers import STEP_MASK, make_answer, run_in_slices, with_breaks
from penstock.foundation.steps import Steps
from penstock.foundation.time_slices import SLICE_S


class Turns:
    """A broker's clock and timer: an item takes as long as a slice has."""

    def __init__(self, cost_s: float) -> None:
        self.now_s = 0.0
        self.cost_s = cost_s
        self.done: list[int] = []
        self.next: list[Callable[[], None]] = []
        self.broker = cast(
            Broker, SimpleNamespace(clock=SimpleNamespace(monotonic_s=lambda: self.now_s), timer=self._timer)
        )

    def _timer(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        assert seconds == 0
        self.next.append(action)
        return lambda: self.next.remove(action)

    def act(self, item: int) -> None:
        self.done.append(item)
        self.now_s += self.cost_s


def test_items_are_done_in_turns_and_what_is_left_can_be_stopped() -> None:
    turns = Turns(SLICE_S / 2)
    stop = run_in_slices(turns.broker, range(10), turns.act)
    assert turns.done == [0, 1]
    turns.next.pop()()
    assert turns.done == [0, 1, 2, 3]
    stop()
    assert not turns.next


def test_few_items_are_done_at_once() -> None:
    turns = Turns(0.0)
    run_in_slices(turns.broker, range(10), turns.act)()
    assert turns.done == list(range(10))
    assert not turns.next


def test_small_answers_are_made_without_a_task() -> None:
    def steps() -> Steps[int]:
        yield
        return 42

    assert make_answer(Turns(0.0).broker, 1, steps()) == 42


def test_there_is_a_place_for_a_break_after_every_so_many_items() -> None:
    found = list(with_breaks(range(3 * (STEP_MASK + 1))))
    assert found.count(None) == 3
    assert [item for item in found if item is not None] == list(range(3 * (STEP_MASK + 1)))

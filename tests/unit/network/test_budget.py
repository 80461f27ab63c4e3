"""The budget for the bytes of incoming requests."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from penstock.network.budget import ReceiveBudget, Reservation


class Line:
    """The calls, in order."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.called.append(name)


def test_only_bytes_that_arrived_count() -> None:
    budget, line = ReceiveBudget(100), Line()
    loans = [budget.open(line.note(name)) for name in "abc"]
    assert all(reservation.charge(30) for reservation in loans)
    assert budget.held_bytes == 90
    assert not loans[2].charge(30), "it would exceed the limit"
    loans[1].close()
    assert line.called == ["c"]
    assert budget.held_bytes == 90


def test_the_oldest_request_always_goes_on() -> None:
    budget, line = ReceiveBudget(100), Line()
    first, second, third = (budget.open(line.note(name)) for name in "abc")
    assert first.charge(90)
    assert not second.charge(90)
    assert not third.charge(90)
    assert first.charge(500), "or no request would ever be complete"
    first.close()
    assert line.called == ["b"], "it is the oldest now; the third has to wait"
    second.close()
    assert line.called == ["b", "c"]
    third.close()
    third.close()
    assert budget.held_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=100))
def test_some_request_can_always_go_on_and_nothing_is_left_in_the_end(steps: list[tuple[int, int]]) -> None:
    budget, waiting, loans = ReceiveBudget(100), set[int](), dict[int, Reservation]()
    for name, count in steps:
        if name not in loans:
            loans[name] = budget.open(lambda name=name: waiting.discard(name))
        elif name not in waiting and count:
            if not loans[name].charge(count):
                waiting.add(name)
        elif name not in waiting:
            loans.pop(name).close()
        assert not loans or waiting != set(loans), "no request makes progress"
    for reservation in loans.values():
        reservation.close()
    assert budget.held_bytes == 0

"""A bound on the bytes of requests that are still on their way in."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from penstock.network.budget import Budget


class Line:
    """Who was called, in order."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, name: str) -> Callable[[int], None]:
        return lambda count: self.called.append(name)


def test_bytes_are_lent_up_to_the_limit() -> None:
    budget, line = Budget(100), Line()
    assert budget.borrow(60, line("a"))
    assert budget.borrow(40, line("b"))
    assert not budget.borrow(1, line("c"))
    assert budget.lent_bytes == 100
    assert line.called == []


def test_whoever_waits_is_called_when_its_bytes_are_there() -> None:
    budget, line = Budget(100), Line()
    budget.borrow(100, line("a"))
    budget.borrow(60, line("b"))
    budget.borrow(60, line("c"))
    assert budget.is_contended
    budget.give_back(50)
    assert line.called == []
    budget.give_back(50)
    assert line.called == ["b"]
    assert budget.lent_bytes == 60
    budget.give_back(60)
    assert line.called == ["b", "c"]
    assert not budget.is_contended


def test_nobody_overtakes_who_waits() -> None:
    budget, line = Budget(100), Line()
    budget.borrow(50, line("a"))
    assert not budget.borrow(80, line("b"))
    assert not budget.borrow(10, line("c")), "there would be room, but b was first"
    budget.give_back(50)
    assert line.called == ["b", "c"]


def test_one_request_larger_than_the_limit_is_let_in_alone() -> None:
    budget, line = Budget(100), Line()
    assert budget.borrow(500, line("a"))
    assert not budget.borrow(1, line("b"))
    assert not budget.borrow(500, line("c"))
    budget.give_back(500)
    assert line.called == ["b"]
    budget.give_back(1)
    assert line.called == ["b", "c"]
    assert budget.lent_bytes == 500


def test_whoever_is_called_may_give_back_at_once() -> None:
    budget, line = Budget(100), Line()

    def take_and_return(name: str) -> Callable[[int], None]:
        def ready(count: int) -> None:
            line.called.append(name)
            budget.give_back(100)

        return ready

    budget.borrow(100, line("a"))
    for name in "bcd":
        budget.borrow(100, take_and_return(name))
    budget.give_back(100)
    assert line.called == ["b", "c", "d"]
    assert budget.lent_bytes == 0


@given(sizes=st.lists(st.integers(1, 150), max_size=30))
def test_the_limit_holds_and_everyone_has_a_turn(sizes: list[int]) -> None:
    budget = Budget(100)
    holding: list[int] = []
    order: list[int] = []

    def ready(number: int) -> Callable[[int], None]:
        def take(count: int) -> None:
            holding.append(number)
            order.append(number)

        return take

    for number, size in enumerate(sizes):
        if budget.borrow(size, ready(number)):
            ready(number)(size)
        assert sum(sizes[held] for held in holding) == budget.lent_bytes
        assert budget.lent_bytes <= 100 or len(holding) == 1
    while holding:
        budget.give_back(sizes[holding.pop(0)])
        assert budget.lent_bytes <= 100 or len(holding) == 1
    assert order == list(range(len(sizes)))
    assert budget.lent_bytes == 0

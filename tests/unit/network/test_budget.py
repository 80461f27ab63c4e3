"""A bound on the bytes of requests that are still on their way in."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from penstock.network.budget import Budget, Loan, ReceiveBudget


class Line:
    """Who was called, in order."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, name: str) -> Callable[[int], None]:
        return lambda count: self.called.append(name)

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.called.append(name)


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


# -- the budget of requests by what has arrived


def test_only_bytes_that_arrived_count() -> None:
    budget, line = ReceiveBudget(100), Line()
    loans = [budget.open(line.note(name)) for name in "abc"]
    assert all(loan.charge(30) for loan in loans)
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
    assert first.charge(500), "or nobody would ever be done"
    first.close()
    assert line.called == ["b"], "it is the oldest now; the third has to wait"
    second.close()
    assert line.called == ["b", "c"]
    third.close()
    third.close()
    assert budget.held_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=100))
def test_some_request_can_always_go_on_and_nothing_is_left_in_the_end(steps: list[tuple[int, int]]) -> None:
    budget, waiting, loans = ReceiveBudget(100), set[int](), dict[int, Loan]()
    for name, count in steps:
        if name not in loans:
            loans[name] = budget.open(lambda name=name: waiting.discard(name))
        elif name not in waiting and count:
            if not loans[name].charge(count):
                waiting.add(name)
        elif name not in waiting:
            loans.pop(name).close()
        assert not loans or waiting != set(loans), "nobody makes progress"
    for loan in loans.values():
        loan.close()
    assert budget.held_bytes == 0

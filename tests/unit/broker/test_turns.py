"""Turns: one at a time for each transactional id, in the order in which they came."""

from penstock.broker.transactions.produce_order import Turns


class Line:
    """Starts are noted; they end when a test says so."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.started: list[str] = []

    def take(self, name: str, *, is_done_at_once: bool = False) -> None:
        def start() -> None:
            self.started.append(name)
            if is_done_at_once:
                self.turns.give(name[0])

        self.turns.take(name[0], start)


def test_the_first_is_started_at_once_and_the_next_when_it_is_done() -> None:
    line = Line()
    for name in ("a1", "a2", "a3"):
        line.take(name)
    assert line.started == ["a1"]
    line.turns.give("a")
    assert line.started == ["a1", "a2"]
    line.turns.give("a")
    line.turns.give("a")
    assert line.started == ["a1", "a2", "a3"]
    assert not line.turns.is_taken("a")


def test_transactional_ids_do_not_wait_for_each_other() -> None:
    line = Line()
    for name in ("a1", "b1", "a2", "b2"):
        line.take(name)
    assert line.started == ["a1", "b1"]
    line.turns.give("b")
    assert line.started == ["a1", "b1", "b2"]
    assert line.turns.is_taken("a")


def test_very_many_that_are_done_as_soon_as_they_are_started_take_no_stack() -> None:
    line = Line()
    line.take("a0")
    for number in range(1, 5000):
        line.take(f"a{number}", is_done_at_once=True)
    line.turns.give("a")
    assert line.started == [f"a{number}" for number in range(5000)]
    assert not line.turns.is_taken("a")


def test_one_that_comes_while_another_is_started_waits_for_it() -> None:
    turns, seen = Turns(), []

    def first() -> None:
        turns.take("a", second)
        seen.append("first")
        turns.give("a")

    def second() -> None:
        seen.append("second")
        turns.give("a")

    turns.take("a", first)
    assert seen == ["first", "second"]
    assert not turns.is_taken("a")

"""ProduceOrder: one produce request at a time for each transactional id, in order."""

from penstock.broker.produce.request_order import ProduceOrder


class Line:
    """Starts are noted; a test ends them."""

    def __init__(self) -> None:
        self.produce_order = ProduceOrder()
        self.started: list[str] = []

    def enqueue(self, name: str, *, is_done_at_once: bool = False) -> None:
        def start() -> None:
            self.started.append(name)
            if is_done_at_once:
                self.produce_order.finish(name[0])

        self.produce_order.enqueue(name[0], start)


def test_the_first_is_started_at_once_and_the_next_when_it_is_done() -> None:
    line = Line()
    for name in ("a1", "a2", "a3"):
        line.enqueue(name)
    assert line.started == ["a1"]
    line.produce_order.finish("a")
    assert line.started == ["a1", "a2"]
    line.produce_order.finish("a")
    line.produce_order.finish("a")
    assert line.started == ["a1", "a2", "a3"]
    assert not line.produce_order.is_busy("a")


def test_transactional_ids_do_not_wait_for_each_other() -> None:
    line = Line()
    for name in ("a1", "b1", "a2", "b2"):
        line.enqueue(name)
    assert line.started == ["a1", "b1"]
    line.produce_order.finish("b")
    assert line.started == ["a1", "b1", "b2"]
    assert line.produce_order.is_busy("a")


def test_very_many_that_are_done_as_soon_as_they_are_started_take_no_stack() -> None:
    line = Line()
    line.enqueue("a0")
    for number in range(1, 5000):
        line.enqueue(f"a{number}", is_done_at_once=True)
    line.produce_order.finish("a")
    assert line.started == [f"a{number}" for number in range(5000)]
    assert not line.produce_order.is_busy("a")


def test_a_second_start_waits_for_the_first() -> None:
    produce_order, seen = ProduceOrder(), []

    def first() -> None:
        produce_order.enqueue("a", second)
        seen.append("first")
        produce_order.finish("a")

    def second() -> None:
        seen.append("second")
        produce_order.finish("a")

    produce_order.enqueue("a", first)
    assert seen == ["first", "second"]
    assert not produce_order.is_busy("a")

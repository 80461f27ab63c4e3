"""Timers run in order of time, however often they are rescheduled."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.timers import Timers

KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.tuples(st.just("set"), KEYS, st.integers(0, 20))
    | st.tuples(st.just("cancel"), KEYS, st.just(0))
    | st.tuples(st.just("take"), st.just(""), st.integers(0, 20)),
    max_size=60,
)


@given(STEPS)
def test_each_key_is_due_at_the_time_that_was_set_last(steps: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    due: dict[str, tuple[int, int]] = {}  # the time, and when it was set: of equals, the first one comes first
    for turn, (what, key, at_ms) in enumerate(steps):
        if what == "set":
            timers.set(key, at_ms)
            due[key] = at_ms, turn
        elif what == "cancel":
            timers.cancel(key)
            due.pop(key, None)
        else:
            first = min(due, key=lambda known: due[known], default=None)
            expected = first if first is not None and due[first][0] <= at_ms else None
            assert timers.take(at_ms) == expected
            due.pop(expected or "", None)
        next_ms = min((at for at, _ in due.values()), default=None)
        next_ms_lower_bound = timers.next_ms_lower_bound
        assert next_ms is None or (next_ms_lower_bound is not None and next_ms_lower_bound <= next_ms)
        if turn % 2:  # as it is looked at less often than it is changed
            assert timers.next_ms == timers.next_ms_lower_bound == next_ms
        assert all((known in timers) == (known in due) for known in "abcd")


def test_a_key_that_is_put_off_all_the_time_takes_no_more_room() -> None:
    timers: Timers[int] = Timers()
    for at_ms in range(10_000):
        timers.set(at_ms % 3, at_ms)
        timers.set(at_ms % 3, at_ms - 1)
    assert len(timers._heap) < 100

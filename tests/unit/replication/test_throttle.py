"""The token bucket of lagging replicas, on a clock that is moved by the test."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.throttle import BURST_MS, UNLIMITED, Throttle

START_MS = 1_700_000_000_000


class Limited(Throttle):
    """A throttle whose rate a test sets."""

    def __init__(self, rate: int) -> None:
        super().__init__(lambda: self.rate)
        self.rate = rate


def test_without_a_rate_anything_goes() -> None:
    throttle = Throttle()
    throttle.take(1 << 40, START_MS)
    assert throttle.available(START_MS) == UNLIMITED
    assert throttle.wait_ms(START_MS) == 0
    assert throttle.taken == 1 << 40


def test_a_throttle_fills_at_its_rate_and_saves_up_no_more_than_a_burst() -> None:
    throttle = Limited(1000)
    assert throttle.available(START_MS) == 0
    assert throttle.available(START_MS + 10) == 10
    assert throttle.available(START_MS + 250) == 250
    assert throttle.available(START_MS + 60_000) == 1000 * BURST_MS // 1000


def test_an_overdraft_is_made_up_for() -> None:
    throttle = Limited(1000)
    throttle.available(START_MS)
    throttle.take(3000, START_MS + 1000)
    assert throttle.available(START_MS + 1000) == -2000
    assert throttle.wait_ms(START_MS + 1000) == 2001
    assert throttle.available(START_MS + 3000) == 0
    assert throttle.available(START_MS + 3001) == 1


def test_by_a_rate_of_nothing_nothing_goes_and_one_looks_again_some_day() -> None:
    throttle = Limited(0)
    assert throttle.available(START_MS + 3_600_000) == 0
    assert 0 < throttle.wait_ms(START_MS + 3_600_000) <= 60_000


def test_another_rate_begins_anew() -> None:
    throttle = Limited(1_000_000)
    throttle.available(START_MS)
    throttle.take(50_000_000, START_MS)
    throttle.rate = 10
    assert throttle.available(START_MS) == 0
    assert throttle.available(START_MS + 1000) == 10
    throttle.rate = UNLIMITED
    assert throttle.available(START_MS) == UNLIMITED


def test_a_clock_that_stands_still_gives_nothing() -> None:
    throttle = Limited(1000)
    throttle.available(START_MS + 100)
    throttle.take(100, START_MS + 200)
    assert throttle.available(START_MS + 200) == 0
    assert throttle.available(START_MS + 150) == 0
    assert throttle.available(START_MS + 200) == 0


@given(
    rate=st.integers(1, 10_000_000),
    steps=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 2_000_000)), min_size=1, max_size=60),
)
def test_never_more_goes_than_the_rate_a_burst_and_one_batch(rate: int, steps: list[tuple[int, int]]) -> None:
    throttle, now_ms, gone, largest = Limited(rate), START_MS, 0, 0
    throttle.available(now_ms)
    for wait_ms, batch in steps:
        now_ms += wait_ms
        if throttle.available(now_ms) > 0:
            throttle.take(batch, now_ms)
            gone += batch
            largest = max(largest, batch)
        allowed = rate * (now_ms - START_MS) / 1000 + max(1, rate * BURST_MS / 1000) + largest
        assert gone <= allowed


@given(rate=st.integers(1, 10_000_000), owed=st.integers(0, 50_000_000))
def test_after_the_time_that_it_names_there_is_room(rate: int, owed: int) -> None:
    throttle = Limited(rate)
    throttle.available(START_MS)
    throttle.take(owed, START_MS)
    now_ms = START_MS
    while (wait_ms := throttle.wait_ms(now_ms)) > 0:
        before = throttle.available(now_ms)
        now_ms += wait_ms
        assert throttle.available(now_ms) > before or throttle.available(now_ms) > 0
        if wait_ms == 60_000:  # it waits for long: the sum is right, and the rest is more of the same
            return
    assert throttle.available(now_ms) > 0

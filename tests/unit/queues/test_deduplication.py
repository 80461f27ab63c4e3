"""Deduplication ids of the last five minutes."""

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from penstock.queues.deduplication import EXPIRED_MAX, WINDOW_MS, Deduplication
from penstock.queues.errors import TooManyDeduplicationIds
from tests.examples import examples

NOW = 1_700_000_000_000


def test_a_message_that_is_sent_again_is_found_for_five_minutes() -> None:
    known = Deduplication()
    assert known.find("g", "id", NOW) is None
    known.add("g", "id", 7, NOW, NOW)
    assert known.find("g", "id", NOW + WINDOW_MS - 1) == 7
    assert known.find("other", "id", NOW) == 7, "in the whole queue"
    assert known.find("g", "id", NOW + WINDOW_MS) is None


def test_by_group_the_same_id_may_come_in_each() -> None:
    known = Deduplication(is_by_group=True)
    known.add("a", "id", 7, NOW, NOW)
    assert known.find("b", "id", NOW) is None
    assert known.find("a", "id", NOW) == 7


def test_of_two_messages_with_one_id_in_the_log_the_later_one_holds_it() -> None:
    known = Deduplication()
    known.add("g", "id", 7, NOW, NOW + 2000)
    known.add("g", "id", 8, NOW + 1000, NOW + 2000)
    assert known.find("g", "id", NOW + 2000) == 8
    assert known.find("g", "id", NOW + WINDOW_MS) == 8
    assert known.find("g", "id", NOW + WINDOW_MS + 1000) is None
    known.add("g", "id", 9, NOW + 2 * WINDOW_MS, NOW + 2 * WINDOW_MS)
    assert known.find("g", "id", NOW + 2 * WINDOW_MS) == 9


def test_expired_ids_are_dropped_when_they_are_read_back() -> None:
    known = Deduplication()
    known.add("g", "old", 7, NOW - WINDOW_MS, NOW)
    known.add("g", "new", 8, NOW - WINDOW_MS + 1, NOW)
    assert len(known) == 1
    assert known.find("g", "new", NOW) == 8


def test_a_clock_that_is_ahead_does_not_make_an_id_hold_longer() -> None:
    known = Deduplication()
    known.add("g", "id", 7, NOW + 10 * WINDOW_MS, NOW)
    assert known.find("g", "id", NOW + WINDOW_MS) is None


def test_ids_of_messages_that_were_purged_are_forgotten() -> None:
    known = Deduplication()
    for offset, name in enumerate("abc"):
        known.add("g", name, offset, NOW, NOW)
    known.forget_below(2)
    assert [known.find("g", name, NOW) for name in "abc"] == [None, None, 2]
    known.add("g", "a", 3, NOW, NOW)
    assert known.find("g", "a", NOW) == 3


def test_messages_that_are_read_back_after_a_purge_are_forgotten_too() -> None:
    known = Deduplication()
    known.forget_below(2)
    known.add("g", "a", 1, NOW, NOW)
    assert known.find("g", "a", NOW) is None
    known.add("g", "a", 2, NOW, NOW)
    assert known.find("g", "a", NOW) == 2


def test_a_purge_makes_room_and_takes_no_time_however_many_ids_there_are() -> None:
    known = Deduplication(ids_max=10 * EXPIRED_MAX)
    for offset in range(10 * EXPIRED_MAX):
        known.add("g", str(offset), offset, NOW, NOW)
    known.forget_below(10 * EXPIRED_MAX)
    assert len(known) == 10 * EXPIRED_MAX, "they go little by little"
    known.check_room(NOW, EXPIRED_MAX)
    known.add("g", "new", 10 * EXPIRED_MAX, NOW, NOW)
    assert len(known) == 8 * EXPIRED_MAX + 1


def test_with_too_many_ids_messages_are_refused_until_some_are_old() -> None:
    known = Deduplication(ids_max=2)
    known.add("g", "a", 1, NOW, NOW)
    known.check_room(NOW)
    known.add("g", "b", 2, NOW + 10, NOW + 10)
    with pytest.raises(TooManyDeduplicationIds, match="at most 2"):
        known.check_room(NOW + 20)
    known.check_room(NOW + WINDOW_MS)
    assert len(known) == 1


def test_a_log_with_too_many_ids_takes_no_more_memory_and_messages_are_refused_until_they_are_old() -> None:
    known = Deduplication(ids_max=3)
    for offset in range(10):
        known.add("g", str(offset), offset, NOW + offset, NOW + 10)
    assert len(known) == 3
    with pytest.raises(TooManyDeduplicationIds):
        known.check_room(NOW + 8 + WINDOW_MS)
    known.check_room(NOW + 9 + WINDOW_MS)


@examples(50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 200)), max_size=60))
def test_ids_are_what_a_look_at_all_messages_says(sent: list[tuple[str, str, int]]) -> None:
    known = Deduplication(is_by_group=True, window_ms=300)
    taken: list[tuple[str, str, int]] = []
    now_ms = NOW
    for offset, (group, name, wait_ms) in enumerate(sent):
        now_ms += wait_ms
        before = [at for at, (g, n, ms) in enumerate(taken) if (g, n) == (group, name) and now_ms - ms < 300]
        assert known.find(group, name, now_ms) == (before[-1] if before else None)
        if before:
            taken.append(("", "", 0))
        else:
            taken.append((group, name, now_ms))
            known.add(group, name, offset, now_ms, now_ms)
        assert len(known) <= 9

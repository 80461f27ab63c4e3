"""Deadlines when the clock is set: visibility timeouts and delays keep their remaining time."""

import pytest

from penstock.queues import deadlines
from penstock.queues.commands import AckType, Acquire, DeleteGroup, Fresh, Reschedule
from penstock.queues.deadlines import RESCHEDULED_MAX

from .machine_harness import VISIBILITY_MS, MachineHarness, offsets

HOUR_MS = 3_600_000


def set_clock(harness: MachineHarness, by_ms: int) -> int:
    """As the shell does it; how many decisions it took."""
    if by_ms < 0:
        harness.later(by_ms)
    count, command = 0, Reschedule(by_ms)
    while command is not None:
        command = harness.do(command)
        count += 1
    if by_ms > 0:
        harness.later(by_ms)
    return count


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, 1500, -1500])
def test_visibility_timeouts_keep_their_remaining_time(by_ms: int) -> None:
    harness = MachineHarness(end=3)
    harness.acquire("ada", 2)
    harness.later(VISIBILITY_MS // 2)
    harness.acquire("bob", 1)
    assert set_clock(harness, by_ms) == 1
    harness.restart()
    assert harness.acquire("cyd", 9) == []
    harness.later(VISIBILITY_MS // 2)
    assert offsets(harness.acquire("cyd", 9)) == [0, 1]
    harness.later(VISIBILITY_MS // 2)
    assert offsets(harness.acquire("dan", 1)) == [2]


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_available_messages_stay_available_and_receipts_stay_valid(by_ms: int) -> None:
    harness = MachineHarness(end=2)
    harness.acquire("ada", 1)
    harness.later(VISIBILITY_MS)
    harness.acquire("bob", 1)  # the first again, whose time is over
    harness.say("bob", AckType.RELEASE, 0)
    harness.acquire("cyd", 2)
    set_clock(harness, by_ms)
    assert harness.say("cyd", AckType.DONE, 0, 1) is None
    assert harness.delivery.start == 2


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_delays_keep_their_remaining_time(by_ms: int) -> None:
    harness = MachineHarness()
    fresh = (Fresh(0, harness.now_ms + 10_000), Fresh(1))
    assert offsets(harness.acquire_of("ada", 2, fresh, has_more=True)) == [1]
    set_clock(harness, by_ms)
    harness.later(9000)
    assert harness.acquire_of("bob", 1, ()) == []
    harness.later(1000)
    assert offsets(harness.acquire_of("bob", 1, ())) == [0]


def test_many_deadlines_are_moved_a_batch_at_a_time_each_once() -> None:
    count = 2 * RESCHEDULED_MAX + 10
    harness = MachineHarness(end=count)
    for _ in range(count):
        harness.acquire("ada", 1)
        harness.later(1)  # each has a deadline of its own
    before = [delivery_range.due_ms for delivery_range in harness.delivery.ranges.values()]
    assert set_clock(harness, HOUR_MS) == 3
    assert [delivery_range.due_ms for delivery_range in harness.delivery.ranges.values()] == [
        due_ms + HOUR_MS for due_ms in before
    ]


def test_no_deadline_is_moved_twice_if_a_group_is_deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "RESCHEDULED_MAX", 2)
    harness = MachineHarness()
    for group in ("b", "a", "c"):
        for offset in range(2):
            harness.do(Acquire(group, "ada", 1, VISIBILITY_MS + offset, fresh=(Fresh(offset),), fresh_from=offset))

    def last_due_ms(group: str) -> int:
        delivery = harness.machine.group(group)
        assert delivery is not None
        return list(delivery.ranges.values())[-1].due_ms

    due_ms = {name: last_due_ms(name) for name in ("a", "c")}
    left = harness.do(Reschedule(HOUR_MS))
    assert left.group == "b"
    harness.do(DeleteGroup("b"))
    while left is not None:
        left = harness.do(left)
    for name, before_ms in due_ms.items():
        assert last_due_ms(name) == before_ms + HOUR_MS

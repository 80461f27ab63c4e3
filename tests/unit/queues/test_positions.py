"""Whole groups: purged, trimmed, reset, deleted, and summarised."""

import pytest

from penstock.foundation.errors import InvalidRequest
from penstock.queues.commands import AckType, DeleteGroup, Purge, SetPosition, Trimmed
from penstock.queues.errors import AlreadyFinished
from penstock.queues.machine import HOLDER_CHARS_MAX
from penstock.queues.records import purge_mark
from penstock.queues.settings import DeliverySettings
from penstock.replication import state_batches

from .machine_harness import (
    DEAD,
    FIFO,
    QUEUE,
    TICKET,
    VISIBILITY_MS,
    MachineHarness,
    compacted,
    offsets,
    read_back,
    state_of,
)


def test_a_purge_takes_what_is_in_flight_too() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 3)
    harness.do(Purge(QUEUE, 50))
    assert not harness.delivery.ranges
    assert (harness.delivery.start, harness.delivery.end) == (50, 50)
    assert type(harness.say("ada", AckType.DONE, 0)) is AlreadyFinished
    assert offsets(harness.acquire("bob")) == [50]


def test_a_purge_up_to_the_middle_of_a_delivery_range_leaves_the_rest() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 10)
    harness.do(Purge(QUEUE, 4))
    assert [(delivery_range.first, delivery_range.last) for delivery_range in harness.delivery.ranges.values()] == [
        (4, 9)
    ]
    assert harness.delivery.end == 10
    assert harness.say("ada", AckType.DONE, 4, 9) is None


def test_a_purge_leaves_what_is_being_moved_away() -> None:
    harness = MachineHarness(DeliverySettings(dead_letter=DEAD))
    harness.acquire("ada", 3)
    for offset in (0, 1):
        harness.say("ada", AckType.REJECT, offset)
    (copy_effect,) = harness.carries()
    harness.do(Purge(QUEUE, 9))
    assert sorted(harness.delivery.ranges) == [0, 1]
    harness.do(copy_effect.done())
    assert [other.offset for other in harness.carries()] == [1]


def test_messages_below_the_log_start_are_not_delivered() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 4)
    harness.do(Trimmed(QUEUE, 2))
    harness.later(VISIBILITY_MS)
    assert offsets(harness.acquire("bob", 3)) == [2, 3, 4]
    harness.do(Trimmed(QUEUE, 100))
    assert (harness.delivery.start, harness.delivery.end) == (100, 100)


@pytest.mark.parametrize("command", [Trimmed(QUEUE, 2004), Purge(QUEUE, 2004)])
def test_both_records_of_a_split_range_are_in_the_first_batch(
    command: Trimmed | Purge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that has only the first of them would have the messages in two ranges, and deliver them twice."""
    monkeypatch.setattr(state_batches, "BATCH_BYTES_MAX", state_batches.BATCH_BYTES_MAX // 32)
    harness = MachineHarness()
    for _ in range(1000):
        harness.acquire("\U0001f600" * HOLDER_CHARS_MAX, 2)
    harness.acquire("\U0001f600" * HOLDER_CHARS_MAX, 10)
    first, *others = state_batches.in_batches(harness.machine.decide(TICKET, command, harness.now_ms).persist)
    assert others, "the decision needs several batches"
    before = list(harness.records)
    machine = read_back([*before, *first], harness.now_ms)
    delivery = machine.group(QUEUE)
    assert delivery is not None
    found = [offset for each in delivery.ranges.values() for offset in range(each.first, each.last + 1)]
    assert len(found) == len(set(found))
    assert set(range(2004, 2010)) <= set(found)


def test_a_group_can_begin_again_from_an_earlier_place() -> None:
    harness = MachineHarness(end=5)
    harness.acquire("ada", 5)
    harness.say("ada", AckType.DONE, 0, 2)
    harness.do(SetPosition(QUEUE, 1))
    assert offsets(harness.acquire("bob", 9)) == [1, 2, 3, 4]
    harness.restart()
    assert harness.delivery.counts(harness.now_ms).in_flight == 4


def test_a_group_cannot_begin_before_the_log() -> None:
    with pytest.raises(InvalidRequest, match="offset -1"):
        MachineHarness().do(SetPosition(QUEUE, -1))


def test_a_forgotten_group_leaves_nothing() -> None:
    harness = MachineHarness(FIFO)
    harness.do(SetPosition("other", 3))
    harness.acquire("ada", 4)
    harness.do(DeleteGroup(QUEUE))
    assert harness.machine.group(QUEUE) is None
    assert [key for key in map(bytes, (record.key for record in compacted(harness.records))) if b"jobs" in key] == []
    assert harness.machine.groups == ["other"]


def test_a_group_that_is_purged_before_it_began_begins_behind_that() -> None:
    harness = MachineHarness()
    assert harness.do(Purge("new", 3, forgets_ids=True)) is None
    harness.restart()
    delivery = harness.machine.group("new")
    assert delivery is not None
    assert (delivery.end, harness.machine.purged_to("new")) == (3, 3)


@pytest.mark.parametrize("command", [Trimmed("missing", 3), DeleteGroup("missing")])
def test_a_missing_group_is_not_changed(command: object) -> None:
    harness = MachineHarness()
    count = len(harness.records)
    assert harness.do(command) is None
    assert len(harness.records) == count


def test_a_purge_that_was_persisted_in_part_is_finished_by_another() -> None:
    harness = MachineHarness()
    for number in range(20):
        harness.acquire(f"w{number}")
    decision = harness.machine.decide(0, Purge(QUEUE, 20), harness.now_ms)
    assert not decision.is_atomic
    machine = read_back(harness.records + list(decision.persist[:7]), harness.now_ms)
    for record in machine.decide(0, Purge(QUEUE, 20), harness.now_ms).persist:
        machine.apply(record, -1)
    delivery = machine.group(QUEUE)
    assert delivery is not None
    assert not delivery.ranges
    assert delivery.start == 20


# -- purges of FIFO queues


def test_a_purge_says_up_to_where_ids_are_forgotten() -> None:
    harness = MachineHarness(FIFO)
    assert harness.machine.purged_to(QUEUE) == 0
    harness.do(Purge(QUEUE, 5))
    assert harness.machine.purged_to(QUEUE) == 0, "as it was not asked for"
    for end, purged_to in ((5, 5), (9, 9), (7, 9)):
        harness.do(Purge(QUEUE, end, forgets_ids=True))
        harness.restart()
        assert harness.machine.purged_to(QUEUE) == purged_to
        assert harness.machine.purges() == {purge_mark(QUEUE): purged_to}
    assert (harness.machine.purged_to("other"), harness.machine.groups) == (0, [QUEUE])


def test_ids_are_forgotten_only_when_all_of_a_purge_is_persisted() -> None:
    harness = MachineHarness()
    for number in range(20):
        harness.acquire(f"w{number}")
    decision = harness.machine.decide(0, Purge(QUEUE, 20, forgets_ids=True), harness.now_ms)
    assert not decision.is_atomic
    for count in range(len(decision.persist) + 1):
        machine = read_back(harness.records + list(decision.persist[:count]), harness.now_ms)
        delivery = machine.group(QUEUE)
        assert delivery is not None
        assert machine.purged_to(QUEUE) == (0 if delivery.ranges or count < len(decision.persist) else 20)


def test_a_group_that_is_set_back_remembers_ids_from_there_on() -> None:
    harness = MachineHarness(FIFO)
    harness.do(Purge(QUEUE, 9, forgets_ids=True))
    harness.do(SetPosition(QUEUE, 12))
    assert harness.machine.purged_to(QUEUE) == 9
    harness.do(SetPosition(QUEUE, 4))
    harness.restart()
    assert harness.machine.purged_to(QUEUE) == 4


def test_of_the_purges_of_a_group_that_is_forgotten_nothing_is_left() -> None:
    harness = MachineHarness(FIFO)
    harness.do(Purge(QUEUE, 9, forgets_ids=True))
    harness.do(DeleteGroup(QUEUE))
    assert harness.machine.purges() == {}
    assert not compacted(harness.records)


def test_the_summary_says_all_that_the_records_say() -> None:
    harness = MachineHarness(DeliverySettings(dead_letter=DEAD))
    harness.do(Purge("purged", 3, forgets_ids=True))
    harness.do(SetPosition("other", 3))
    harness.acquire("ada", 6)
    for offset in (4, 1, 2):
        harness.say("ada", AckType.REJECT, offset)
    harness.carries()
    machine = read_back(harness.machine.summary(), harness.now_ms)
    assert state_of(machine) == state_of(harness.machine)
    (copy_effect,) = machine.wake(harness.now_ms).effects
    assert copy_effect.offset == 4
    order = []
    while copy_effect is not None:
        decision = machine.decide(0, copy_effect.done(), harness.now_ms)
        order.append(copy_effect.offset)
        for record in decision.persist:
            machine.apply(record, -1)
        copy_effect = next(iter(decision.effects), None)
    assert order == [4, 1, 2]

"""Groups as a whole: purged, trimmed, set back, forgotten, and summed up."""

import pytest

from penstock.foundation.errors import InvalidRequest
from penstock.queues.commands import AckType, DeleteGroup, Purge, SetPosition, Trimmed
from penstock.queues.errors import AlreadyFinished
from penstock.queues.records import purge_mark
from penstock.queues.settings import DeliverySettings

from .driving import DEAD, FIFO, QUEUE, VISIBILITY_MS, Place, compacted, offsets, read_back, state_of


def test_a_purge_takes_what_is_in_flight_too() -> None:
    place = Place()
    place.acquire("ada", 3)
    place.do(Purge(QUEUE, 50))
    assert not place.delivery.ranges
    assert (place.delivery.start, place.delivery.end) == (50, 50)
    assert type(place.say("ada", AckType.DONE, 0)) is AlreadyFinished
    assert offsets(place.acquire("bob")) == [50]


def test_a_purge_up_to_the_middle_of_a_delivery_range_leaves_the_rest() -> None:
    place = Place()
    place.acquire("ada", 10)
    place.do(Purge(QUEUE, 4))
    assert [(delivery_range.first, delivery_range.last) for delivery_range in place.delivery.ranges.values()] == [
        (4, 9)
    ]
    assert place.delivery.end == 10
    assert place.say("ada", AckType.DONE, 4, 9) is None


def test_a_purge_leaves_what_is_being_moved_away() -> None:
    place = Place(DeliverySettings(dead_letter=DEAD))
    place.acquire("ada", 3)
    for offset in (0, 1):
        place.say("ada", AckType.REJECT, offset)
    (copy_effect,) = place.carries()
    place.do(Purge(QUEUE, 9))
    assert sorted(place.delivery.ranges) == [0, 1]
    place.do(copy_effect.done())
    assert [other.offset for other in place.carries()] == [1]


def test_what_the_log_has_lost_is_nobodys() -> None:
    place = Place()
    place.acquire("ada", 4)
    place.do(Trimmed(QUEUE, 2))
    place.later(VISIBILITY_MS)
    assert offsets(place.acquire("bob", 3)) == [2, 3, 4]
    place.do(Trimmed(QUEUE, 100))
    assert (place.delivery.start, place.delivery.end) == (100, 100)


def test_a_group_can_begin_again_from_an_earlier_place() -> None:
    place = Place(end=5)
    place.acquire("ada", 5)
    place.say("ada", AckType.DONE, 0, 2)
    place.do(SetPosition(QUEUE, 1))
    assert offsets(place.acquire("bob", 9)) == [1, 2, 3, 4]
    place.restart()
    assert place.delivery.counts(place.now_ms).in_flight == 4


def test_a_group_cannot_begin_before_the_log() -> None:
    with pytest.raises(InvalidRequest, match="offset -1"):
        Place().do(SetPosition(QUEUE, -1))


def test_of_a_group_that_is_forgotten_nothing_is_left() -> None:
    place = Place(FIFO)
    place.do(SetPosition("other", 3))
    place.acquire("ada", 4)
    place.do(DeleteGroup(QUEUE))
    assert place.machine.group(QUEUE) is None
    assert [key for key in map(bytes, (record.key for record in compacted(place.records))) if b"jobs" in key] == []
    assert place.machine.groups == ["other"]


def test_a_group_that_is_purged_before_it_began_begins_behind_that() -> None:
    place = Place()
    assert place.do(Purge("new", 3, forgets_ids=True)) is None
    place.restart()
    delivery = place.machine.group("new")
    assert delivery is not None
    assert (delivery.end, place.machine.purged_to("new")) == (3, 3)


@pytest.mark.parametrize("command", [Trimmed("nobody", 3), DeleteGroup("nobody")])
def test_of_a_group_that_is_not_there_nothing_is_changed(command: object) -> None:
    place = Place()
    count = len(place.records)
    assert place.do(command) is None
    assert len(place.records) == count


def test_a_purge_that_was_persisted_in_part_is_finished_by_another() -> None:
    place = Place()
    for number in range(20):
        place.acquire(f"w{number}")
    decision = place.machine.decide(0, Purge(QUEUE, 20), place.now_ms)
    assert not decision.is_atomic
    machine = read_back(place.records + list(decision.persist[:7]), place.now_ms)
    for record in machine.decide(0, Purge(QUEUE, 20), place.now_ms).persist:
        machine.apply(record, -1)
    delivery = machine.group(QUEUE)
    assert delivery is not None
    assert not delivery.ranges
    assert delivery.start == 20


# -- purges of FIFO queues


def test_a_purge_says_up_to_where_ids_are_forgotten() -> None:
    place = Place(FIFO)
    assert place.machine.purged_to(QUEUE) == 0
    place.do(Purge(QUEUE, 5))
    assert place.machine.purged_to(QUEUE) == 0, "as it was not asked for"
    for end, purged_to in ((5, 5), (9, 9), (7, 9)):
        place.do(Purge(QUEUE, end, forgets_ids=True))
        place.restart()
        assert place.machine.purged_to(QUEUE) == purged_to
        assert place.machine.purges() == {purge_mark(QUEUE): purged_to}
    assert (place.machine.purged_to("other"), place.machine.groups) == (0, [QUEUE])


def test_ids_are_forgotten_only_when_all_of_a_purge_is_persisted() -> None:
    place = Place()
    for number in range(20):
        place.acquire(f"w{number}")
    decision = place.machine.decide(0, Purge(QUEUE, 20, forgets_ids=True), place.now_ms)
    assert not decision.is_atomic
    for count in range(len(decision.persist) + 1):
        machine = read_back(place.records + list(decision.persist[:count]), place.now_ms)
        delivery = machine.group(QUEUE)
        assert delivery is not None
        assert machine.purged_to(QUEUE) == (0 if delivery.ranges or count < len(decision.persist) else 20)


def test_a_group_that_is_set_back_remembers_ids_from_there_on() -> None:
    place = Place(FIFO)
    place.do(Purge(QUEUE, 9, forgets_ids=True))
    place.do(SetPosition(QUEUE, 12))
    assert place.machine.purged_to(QUEUE) == 9
    place.do(SetPosition(QUEUE, 4))
    place.restart()
    assert place.machine.purged_to(QUEUE) == 4


def test_of_the_purges_of_a_group_that_is_forgotten_nothing_is_left() -> None:
    place = Place(FIFO)
    place.do(Purge(QUEUE, 9, forgets_ids=True))
    place.do(DeleteGroup(QUEUE))
    assert place.machine.purges() == {}
    assert not compacted(place.records)


def test_the_summary_says_all_that_the_records_say() -> None:
    place = Place(DeliverySettings(dead_letter=DEAD))
    place.do(Purge("purged", 3, forgets_ids=True))
    place.do(SetPosition("other", 3))
    place.acquire("ada", 6)
    for offset in (4, 1, 2):
        place.say("ada", AckType.REJECT, offset)
    place.carries()
    machine = read_back(place.machine.summary(), place.now_ms)
    assert state_of(machine) == state_of(place.machine)
    (copy_effect,) = machine.wake(place.now_ms).effects
    assert copy_effect.offset == 4
    order = []
    while copy_effect is not None:
        decision = machine.decide(0, copy_effect.done(), place.now_ms)
        order.append(copy_effect.offset)
        for record in decision.persist:
            machine.apply(record, -1)
        copy_effect = next(iter(decision.effects), None)
    assert order == [4, 1, 2]

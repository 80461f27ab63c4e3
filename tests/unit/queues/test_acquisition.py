"""Who gets which messages of a standard queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.decision import NO_PRODUCER
from penstock.foundation.errors import InvalidRequest
from penstock.queues.acknowledgement import RELEASED_MAX
from penstock.queues.commands import AckType, Acquire, Acquired, Counts, Fresh, ReleaseHolder, SetPosition
from penstock.queues.errors import NotHeld, OverLimit, TooManyGroups
from penstock.queues.records import position_key, position_record
from penstock.queues.settings import GROUPS_MAX, DeliverySettings, share_of

from .driving import QUEUE, START_MS, VISIBILITY_MS, Place, offsets


def test_new_messages_are_given_in_order_and_as_one_delivery_range() -> None:
    place = Place()
    assert place.acquire("ada", 3) == [Acquired(0, 2, 1, START_MS, START_MS + VISIBILITY_MS)]
    assert place.acquire("bob", 2) == [Acquired(3, 4, 1, START_MS, START_MS + VISIBILITY_MS)]
    assert list(place.delivery.ranges) == [0, 3]
    assert place.delivery.end == 5
    assert place.delivery.counts(place.now_ms) == Counts(0, 5, 0, 0)


def test_a_receive_of_ten_is_two_records_and_the_deletion_of_all_ten_is_one() -> None:
    place = Place()
    place.acquire("ada", 10)
    assert place.batches[-1] == 2
    assert place.say("ada", AckType.DONE, 0, 9) is None
    assert place.batches[-1] == 1
    assert place.delivery.start == 10


def test_nobody_gets_a_message_that_is_in_flight() -> None:
    place = Place(end=2)
    assert offsets(place.acquire("ada", 10)) == [0, 1]
    assert place.acquire("bob", 10) == []
    assert place.batches[-1] == 0


def test_a_worker_that_dies_gives_its_message_back() -> None:
    place = Place(end=1)
    place.acquire("ada")
    place.later(VISIBILITY_MS - 1)
    assert place.acquire("bob") == []
    assert place.delivery.ready_at_ms == START_MS + VISIBILITY_MS
    place.later(1)
    assert place.delivery.ready_at_ms is not None
    assert place.delivery.ready_at_ms <= place.now_ms
    again = place.acquire("bob")
    assert [(one.first, one.count, one.first_received_ms) for one in again] == [(0, 2, START_MS)]


def test_what_came_back_is_given_before_what_is_fresh() -> None:
    place = Place()
    place.acquire("ada", 4)
    place.say("ada", AckType.DONE, 1)
    place.later(VISIBILITY_MS)
    assert offsets(place.acquire("bob", 5)) == [0, 2, 3, 4, 5]


def test_of_a_range_that_came_back_only_as_many_are_taken_as_are_wanted() -> None:
    place = Place(end=6)
    place.acquire("ada", 6)
    place.later(VISIBILITY_MS)
    assert offsets(place.acquire("bob", 2)) == [0, 1]
    assert offsets(place.acquire("cyd", 3)) == [2, 3, 4]
    assert place.say("ada", AckType.DONE, 5) is None, "nobody else has it"
    assert isinstance(place.say("ada", AckType.DONE, 2), NotHeld)


def test_neighbours_that_come_back_are_one_delivery_range_again() -> None:
    place = Place()
    place.acquire("ada", 3)
    for offset in (1, 0, 2):
        assert place.say("ada", AckType.RELEASE, offset) is None
    assert [(delivery_range.first, delivery_range.last) for delivery_range in place.delivery.ranges.values()] == [
        (0, 2)
    ]


def test_deadlines_and_counts_survive_a_failover() -> None:
    place = Place(end=2)
    place.acquire("ada", 2)
    place.say("ada", AckType.DONE, 0)
    place.restart()
    place.later(VISIBILITY_MS - 1)
    assert place.acquire("bob", 2) == []
    assert place.say("ada", AckType.RENEW, 1, due_ms=place.now_ms + 5000) is None
    place.restart()
    place.later(5000)
    assert [(one.first, one.count) for one in place.acquire("bob", 2)] == [(1, 2)]


def test_who_could_not_be_told_changes_nothing() -> None:
    place = Place()
    place.broken = True
    place.acquire("ada", 3)
    place.broken = False
    assert offsets(place.acquire("bob", 3)) == [0, 1, 2]


def test_a_receive_with_no_visibility_timeout_leaves_the_message_for_all() -> None:
    place = Place(end=1)
    assert offsets(place.acquire("ada", visibility_ms=0)) == [0]
    assert [(one.first, one.count) for one in place.acquire("bob")] == [(0, 2)]


# -- limits


def test_too_many_in_flight_is_an_error_and_what_is_deleted_makes_room() -> None:
    place = Place(DeliverySettings(in_flight_max=3))
    assert offsets(place.acquire("ada", 10)) == [0, 1, 2]
    with pytest.raises(OverLimit, match="at most 3"):
        place.acquire("bob")
    place.say("ada", AckType.DONE, 1)
    assert offsets(place.acquire("bob", 10)) == [3]


def test_each_partition_has_its_share_of_what_may_be_in_flight() -> None:
    assert share_of(120_000, 1) == 120_000
    assert share_of(120_000, 7) * 7 >= 120_000 > (share_of(120_000, 7) - 1) * 7


def test_with_too_many_delivery_ranges_no_new_message_is_acquired() -> None:
    place = Place(DeliverySettings(ranges_max=2))
    place.acquire("ada")
    place.acquire("bob")
    assert place.acquire("cyd") == []
    place.say("ada", AckType.DONE, 0)
    assert offsets(place.acquire("cyd")) == [2]


def test_a_partition_has_room_for_so_many_groups() -> None:
    place = Place()
    for number in range(GROUPS_MAX - 1):
        place.machine.apply(position_record(position_key(f"g{number}"), f"g{number}", 0), NO_PRODUCER)
    with pytest.raises(TooManyGroups):
        place.do(SetPosition("one too many", 0))


def test_a_first_message_is_given_however_large() -> None:
    place = Place()
    fresh = tuple(Fresh(offset, size=100) for offset in range(4))
    assert offsets(place.acquire_of("ada", 4, fresh, max_bytes=10)) == [0]
    assert offsets(place.acquire_of("ada", 3, fresh, max_bytes=250)) == [1, 2]


def test_a_holder_has_a_name() -> None:
    with pytest.raises(InvalidRequest, match="0 characters"):
        Place().acquire("")


# -- what was read ahead


def test_whoever_read_ahead_before_others_acquired_gets_only_what_is_left() -> None:
    place = Place()
    fresh = tuple(Fresh(offset) for offset in range(4))
    assert offsets(place.do(Acquire(QUEUE, "ada", 2, 1000, fresh, 4, 0))) == [0, 1]
    assert offsets(place.do(Acquire(QUEUE, "bob", 9, 1000, fresh, 4, 0))) == [2, 3]
    assert place.delivery.end == 4


@given(
    runs=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=6),
    wants=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 40), st.booleans()), min_size=1, max_size=6),
)
def test_runs_of_messages_are_given_as_if_each_were_read_by_itself(
    runs: list[tuple[int, int]], wants: list[tuple[int, int, bool]]
) -> None:
    """`runs`: offsets that are no messages, messages behind them; `wants`: messages, bytes, whole ranges or not."""
    together: list[Fresh] = []
    at = 0
    for gap, run in runs:
        together.append(Fresh(at + gap, 0, 3, "", run))
        at += gap + run
    single = [Fresh(one.offset + number, 0, 3) for one in together for number in range(one.run)]
    settings = DeliverySettings(in_flight_max=20)
    places = [Place(), Place()]
    for holder, (count, max_bytes, whole) in enumerate(wants):
        replies = []
        for place, fresh in zip(places, (together, single), strict=True):
            command = Acquire(
                QUEUE, f"w{holder}", count, 1000, tuple(fresh), at, 0, max_bytes, whole, settings=settings
            )
            try:
                replies.append(place.do(command))
            except OverLimit:
                replies.append("over the limit")
        assert replies[0] == replies[1]
        assert places[0].delivery.end == places[1].delivery.end


def test_what_was_read_behind_the_end_is_left_aside() -> None:
    place = Place(start=5)
    place.do(SetPosition(QUEUE, 2))
    assert place.do(Acquire(QUEUE, "ada", 2, 1000, (Fresh(5), Fresh(6)), 7, 5)) == ()
    assert place.delivery.end == 2


def test_markers_and_aborted_messages_are_passed_over() -> None:
    place = Place()
    got = place.acquire_of("ada", 5, (Fresh(1), Fresh(2), Fresh(6)), fresh_end=9)
    assert [(one.first, one.last) for one in got] == [(1, 2), (6, 6)]
    assert place.delivery.end == 9
    assert place.delivery.counts(place.now_ms).in_flight == 3
    place.say("ada", AckType.DONE, 1, 6)
    assert place.delivery.start == 9


def test_a_log_with_nothing_for_anyone_moves_the_end() -> None:
    place = Place()
    assert place.acquire_of("ada", 5, (), fresh_end=7) == []
    assert place.delivery.end == 7


def test_a_group_that_is_not_known_begins_where_reading_began() -> None:
    place = Place()
    assert place.do(Acquire("other", "ada", 1, 1000)) == ()
    assert place.machine.group("other") is None
    assert offsets(place.do(Acquire("other", "ada", 1, 1000, (Fresh(7),), 8, 5))) == [7]
    other = place.machine.group("other")
    assert other is not None
    assert (other.start, other.end) == (7, 8)


def test_groups_of_one_partition_do_not_know_each_other() -> None:
    place = Place()
    place.do(SetPosition("other", 0))
    place.acquire("ada", 2)
    assert offsets(place.do(Acquire("other", "ada", 1, 1000, (Fresh(0),), 1, 0))) == [0]
    assert place.machine.start == 0
    place.say("ada", AckType.DONE, 0, 1)
    assert place.machine.start == 0
    assert sorted(place.machine.groups) == [QUEUE, "other"]


# -- delayed messages


def test_messages_behind_a_delayed_one_are_delivered() -> None:
    place = Place()
    fresh = (Fresh(0, START_MS + 4500), Fresh(1))
    assert offsets(place.acquire_of("ada", 2, fresh)) == [1]
    assert place.delivery.counts(place.now_ms) == Counts(0, 1, 1, 0)
    assert place.delivery.ready_at_ms == START_MS + 5000, "at whole seconds"
    place.later(5000)
    assert [(one.first, one.count) for one in place.acquire_of("bob", 2, ())] == [(0, 1)]


def test_very_many_delayed_messages_are_a_few_delivery_ranges() -> None:
    place = Place()
    for first in range(0, 50_000, 5000):
        fresh = tuple(Fresh(offset, START_MS + 60_000 + offset // 5000) for offset in range(first, first + 5000))
        assert place.acquire_of("ada", 10, fresh, has_more=True) == []
    assert len(place.delivery.ranges) <= 10
    assert place.delivery.counts(place.now_ms).delayed == 50_000
    place.later(61_000)
    assert len(offsets(place.acquire_of("ada", 10, ()))) == 10


def test_a_queue_where_all_are_delayed_alike_is_not_looked_through() -> None:
    place = Place()
    fresh = tuple(Fresh(offset, START_MS + 1000 + offset) for offset in range(5))
    assert place.acquire_of("ada", 5, fresh) == []
    assert not place.delivery.ranges
    assert place.delivery.end == 0
    place.later(1002)
    assert offsets(place.acquire_of("ada", 5, fresh)) == [0, 1, 2]
    assert place.delivery.end == 3


# -- share groups


def test_a_share_group_may_be_given_more_to_keep_ranges_whole() -> None:
    place = Place(DeliverySettings(in_flight_max=8))
    fresh = tuple(Fresh(offset) for offset in range(20))
    assert offsets(place.acquire_of("ada", 1, fresh[:5], whole_ranges=True)) == [0, 1, 2, 3, 4]
    place.say("ada", AckType.RELEASE, 0, 4)
    assert offsets(place.acquire_of("bob", 2, fresh[5:6], whole_ranges=True)) == [0, 1, 2, 3, 4]
    assert offsets(place.acquire_of("cyd", 2, fresh[5:], whole_ranges=True)) == [5, 6, 7]


def test_a_member_that_leaves_gives_back_all_that_it_has() -> None:
    place = Place()
    place.acquire("ada", 3)
    place.acquire("bob", 2)
    place.acquire("ada", 1)
    assert place.do(ReleaseHolder(QUEUE, "ada")) == 4
    assert place.do(ReleaseHolder(QUEUE, "ada")) == 0
    assert [(one.first, one.last, one.count) for one in place.acquire("cyd", 9)] == [(0, 2, 2), (5, 5, 2), (6, 10, 1)]


def test_a_member_with_very_many_messages_gives_them_back_in_several_decisions() -> None:
    place = Place()
    count = RELEASED_MAX + 5
    for number in range(count):
        place.acquire("ada", visibility_ms=VISIBILITY_MS + number)
    assert place.do(ReleaseHolder(QUEUE, "ada")) == RELEASED_MAX
    assert place.do(ReleaseHolder(QUEUE, "ada")) == 5
    assert place.do(ReleaseHolder(QUEUE, "ada")) == 0
    assert len(place.delivery.ranges) == 1


def test_a_member_that_never_saw_its_messages_has_not_been_delivered_them() -> None:
    place = Place()
    place.acquire("ada", 3)
    assert place.do(ReleaseHolder(QUEUE, "ada", is_undone=True)) == 3
    assert [one.count for one in place.acquire("cyd", 3)] == [1]


def test_who_gives_back_to_a_group_that_is_not_there_had_nothing() -> None:
    assert Place().do(ReleaseHolder("nobody", "ada")) == 0


def test_a_command_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="str is not a command"):
        Place().do("deliver!")

"""Acquisition of messages of a standard queue."""

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

from .machine_harness import QUEUE, START_MS, VISIBILITY_MS, MachineHarness, offsets


def test_new_messages_are_given_in_order_and_as_one_delivery_range() -> None:
    harness = MachineHarness()
    assert harness.acquire("ada", 3) == [Acquired(0, 2, 1, START_MS, START_MS + VISIBILITY_MS)]
    assert harness.acquire("bob", 2) == [Acquired(3, 4, 1, START_MS, START_MS + VISIBILITY_MS)]
    assert list(harness.delivery.ranges) == [0, 3]
    assert harness.delivery.end == 5
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 5, 0, 0)


def test_a_receive_of_ten_is_two_records_and_the_deletion_of_all_ten_is_one() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 10)
    assert harness.batches[-1] == 2
    assert harness.say("ada", AckType.DONE, 0, 9) is None
    assert harness.batches[-1] == 1
    assert harness.delivery.start == 10


def test_a_message_in_flight_is_not_delivered() -> None:
    harness = MachineHarness(end=2)
    assert offsets(harness.acquire("ada", 10)) == [0, 1]
    assert harness.acquire("bob", 10) == []
    assert harness.batches[-1] == 0


def test_a_worker_that_dies_gives_its_message_back() -> None:
    harness = MachineHarness(end=1)
    harness.acquire("ada")
    harness.later(VISIBILITY_MS - 1)
    assert harness.acquire("bob") == []
    assert harness.delivery.ready_at_ms == START_MS + VISIBILITY_MS
    harness.later(1)
    assert harness.delivery.ready_at_ms is not None
    assert harness.delivery.ready_at_ms <= harness.now_ms
    again = harness.acquire("bob")
    assert [(one.first, one.count, one.first_received_ms) for one in again] == [(0, 2, START_MS)]


def test_redelivered_messages_come_before_new_ones() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 4)
    harness.say("ada", AckType.DONE, 1)
    harness.later(VISIBILITY_MS)
    assert offsets(harness.acquire("bob", 5)) == [0, 2, 3, 4, 5]


def test_of_a_range_that_came_back_only_as_many_are_taken_as_are_wanted() -> None:
    harness = MachineHarness(end=6)
    harness.acquire("ada", 6)
    harness.later(VISIBILITY_MS)
    assert offsets(harness.acquire("bob", 2)) == [0, 1]
    assert offsets(harness.acquire("cyd", 3)) == [2, 3, 4]
    assert harness.say("ada", AckType.DONE, 5) is None, "it was not delivered again"
    assert isinstance(harness.say("ada", AckType.DONE, 2), NotHeld)


def test_neighbours_that_come_back_are_one_delivery_range_again() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 3)
    for offset in (1, 0, 2):
        assert harness.say("ada", AckType.RELEASE, offset) is None
    assert [(delivery_range.first, delivery_range.last) for delivery_range in harness.delivery.ranges.values()] == [
        (0, 2)
    ]


def test_deadlines_and_counts_survive_a_failover() -> None:
    harness = MachineHarness(end=2)
    harness.acquire("ada", 2)
    harness.say("ada", AckType.DONE, 0)
    harness.restart()
    harness.later(VISIBILITY_MS - 1)
    assert harness.acquire("bob", 2) == []
    assert harness.say("ada", AckType.RENEW, 1, due_ms=harness.now_ms + 5000) is None
    harness.restart()
    harness.later(5000)
    assert [(one.first, one.count) for one in harness.acquire("bob", 2)] == [(1, 2)]


def test_an_acquisition_that_cannot_be_persisted_changes_nothing() -> None:
    harness = MachineHarness()
    harness.broken = True
    harness.acquire("ada", 3)
    harness.broken = False
    assert offsets(harness.acquire("bob", 3)) == [0, 1, 2]


def test_a_receive_with_no_visibility_timeout_leaves_the_message_for_all() -> None:
    harness = MachineHarness(end=1)
    assert offsets(harness.acquire("ada", visibility_ms=0)) == [0]
    assert [(one.first, one.count) for one in harness.acquire("bob")] == [(0, 2)]


# -- limits


def test_too_many_in_flight_is_an_error_and_what_is_deleted_makes_room() -> None:
    harness = MachineHarness(DeliverySettings(in_flight_max=3))
    assert offsets(harness.acquire("ada", 10)) == [0, 1, 2]
    with pytest.raises(OverLimit, match="at most 3"):
        harness.acquire("bob")
    harness.say("ada", AckType.DONE, 1)
    assert offsets(harness.acquire("bob", 10)) == [3]


def test_each_partition_has_its_share_of_what_may_be_in_flight() -> None:
    assert share_of(120_000, 1) == 120_000
    assert share_of(120_000, 7) * 7 >= 120_000 > (share_of(120_000, 7) - 1) * 7


def test_with_too_many_delivery_ranges_no_new_message_is_acquired() -> None:
    harness = MachineHarness(DeliverySettings(ranges_max=2))
    harness.acquire("ada")
    harness.acquire("bob")
    assert harness.acquire("cyd") == []
    harness.say("ada", AckType.DONE, 0)
    assert offsets(harness.acquire("cyd")) == [2]


def test_a_partition_has_room_for_so_many_groups() -> None:
    harness = MachineHarness()
    for number in range(GROUPS_MAX - 1):
        harness.machine.apply(position_record(position_key(f"g{number}"), f"g{number}", 0), NO_PRODUCER)
    with pytest.raises(TooManyGroups):
        harness.do(SetPosition("one too many", 0))


def test_a_first_message_is_given_however_large() -> None:
    harness = MachineHarness()
    fresh = tuple(Fresh(offset, size=100) for offset in range(4))
    assert offsets(harness.acquire_of("ada", 4, fresh, max_bytes=10)) == [0]
    assert offsets(harness.acquire_of("ada", 3, fresh, max_bytes=250)) == [1, 2]


def test_a_holder_has_a_name() -> None:
    with pytest.raises(InvalidRequest, match="0 characters"):
        MachineHarness().acquire("")


# -- what was read ahead


def test_a_read_ahead_of_acquired_messages_gets_only_what_is_left() -> None:
    harness = MachineHarness()
    fresh = tuple(Fresh(offset) for offset in range(4))
    assert offsets(harness.do(Acquire(QUEUE, "ada", 2, 1000, fresh, 4, 0))) == [0, 1]
    assert offsets(harness.do(Acquire(QUEUE, "bob", 9, 1000, fresh, 4, 0))) == [2, 3]
    assert harness.delivery.end == 4


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
    places = [MachineHarness(), MachineHarness()]
    for holder, (count, max_bytes, whole) in enumerate(wants):
        replies = []
        for harness, fresh in zip(places, (together, single), strict=True):
            command = Acquire(
                QUEUE, f"w{holder}", count, 1000, tuple(fresh), at, 0, max_bytes, whole, settings=settings
            )
            try:
                replies.append(harness.do(command))
            except OverLimit:
                replies.append("over the limit")
        assert replies[0] == replies[1]
        assert places[0].delivery.end == places[1].delivery.end


def test_messages_read_behind_the_end_are_ignored() -> None:
    harness = MachineHarness(start=5)
    harness.do(SetPosition(QUEUE, 2))
    assert harness.do(Acquire(QUEUE, "ada", 2, 1000, (Fresh(5), Fresh(6)), 7, 5)) == ()
    assert harness.delivery.end == 2


def test_markers_and_aborted_messages_are_passed_over() -> None:
    harness = MachineHarness()
    got = harness.acquire_of("ada", 5, (Fresh(1), Fresh(2), Fresh(6)), fresh_end=9)
    assert [(one.first, one.last) for one in got] == [(1, 2), (6, 6)]
    assert harness.delivery.end == 9
    assert harness.delivery.counts(harness.now_ms).in_flight == 3
    harness.say("ada", AckType.DONE, 1, 6)
    assert harness.delivery.start == 9


def test_a_log_range_without_messages_moves_the_end() -> None:
    harness = MachineHarness()
    assert harness.acquire_of("ada", 5, (), fresh_end=7) == []
    assert harness.delivery.end == 7


def test_a_group_that_is_not_known_begins_where_reading_began() -> None:
    harness = MachineHarness()
    assert harness.do(Acquire("other", "ada", 1, 1000)) == ()
    assert harness.machine.group("other") is None
    assert offsets(harness.do(Acquire("other", "ada", 1, 1000, (Fresh(7),), 8, 5))) == [7]
    other = harness.machine.group("other")
    assert other is not None
    assert (other.start, other.end) == (7, 8)


def test_groups_of_one_partition_do_not_know_each_other() -> None:
    harness = MachineHarness()
    harness.do(SetPosition("other", 0))
    harness.acquire("ada", 2)
    assert offsets(harness.do(Acquire("other", "ada", 1, 1000, (Fresh(0),), 1, 0))) == [0]
    assert harness.machine.start == 0
    harness.say("ada", AckType.DONE, 0, 1)
    assert harness.machine.start == 0
    assert sorted(harness.machine.groups) == [QUEUE, "other"]


# -- delayed messages


def test_messages_behind_a_delayed_one_are_delivered() -> None:
    harness = MachineHarness()
    fresh = (Fresh(0, START_MS + 4500), Fresh(1))
    assert offsets(harness.acquire_of("ada", 2, fresh)) == [1]
    assert harness.delivery.counts(harness.now_ms) == Counts(0, 1, 1, 0)
    assert harness.delivery.ready_at_ms == START_MS + 5000, "at whole seconds"
    harness.later(5000)
    assert [(one.first, one.count) for one in harness.acquire_of("bob", 2, ())] == [(0, 1)]


def test_very_many_delayed_messages_are_a_few_delivery_ranges() -> None:
    harness = MachineHarness()
    for first in range(0, 50_000, 5000):
        fresh = tuple(Fresh(offset, START_MS + 60_000 + offset // 5000) for offset in range(first, first + 5000))
        assert harness.acquire_of("ada", 10, fresh, has_more=True) == []
    assert len(harness.delivery.ranges) <= 10
    assert harness.delivery.counts(harness.now_ms).delayed == 50_000
    harness.later(61_000)
    assert len(offsets(harness.acquire_of("ada", 10, ()))) == 10


def test_a_queue_where_all_are_delayed_alike_is_not_looked_through() -> None:
    harness = MachineHarness()
    fresh = tuple(Fresh(offset, START_MS + 1000 + offset) for offset in range(5))
    assert harness.acquire_of("ada", 5, fresh) == []
    assert not harness.delivery.ranges
    assert harness.delivery.end == 0
    harness.later(1002)
    assert offsets(harness.acquire_of("ada", 5, fresh)) == [0, 1, 2]
    assert harness.delivery.end == 3


# -- share groups


def test_a_share_group_may_be_given_more_to_keep_ranges_whole() -> None:
    harness = MachineHarness(DeliverySettings(in_flight_max=8))
    fresh = tuple(Fresh(offset) for offset in range(20))
    assert offsets(harness.acquire_of("ada", 1, fresh[:5], whole_ranges=True)) == [0, 1, 2, 3, 4]
    harness.say("ada", AckType.RELEASE, 0, 4)
    assert offsets(harness.acquire_of("bob", 2, fresh[5:6], whole_ranges=True)) == [0, 1, 2, 3, 4]
    assert offsets(harness.acquire_of("cyd", 2, fresh[5:], whole_ranges=True)) == [5, 6, 7]


def test_a_leaving_member_releases_all_its_messages() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 3)
    harness.acquire("bob", 2)
    harness.acquire("ada", 1)
    assert harness.do(ReleaseHolder(QUEUE, "ada")) == 4
    assert harness.do(ReleaseHolder(QUEUE, "ada")) == 0
    assert [(one.first, one.last, one.count) for one in harness.acquire("cyd", 9)] == [
        (0, 2, 2),
        (5, 5, 2),
        (6, 10, 1),
    ]


def test_a_member_with_very_many_messages_gives_them_back_in_several_decisions() -> None:
    harness = MachineHarness()
    count = RELEASED_MAX + 5
    for number in range(count):
        harness.acquire("ada", visibility_ms=VISIBILITY_MS + number)
    assert harness.do(ReleaseHolder(QUEUE, "ada")) == RELEASED_MAX
    assert harness.do(ReleaseHolder(QUEUE, "ada")) == 5
    assert harness.do(ReleaseHolder(QUEUE, "ada")) == 0
    assert len(harness.delivery.ranges) == 1


def test_a_member_that_never_saw_its_messages_has_not_been_delivered_them() -> None:
    harness = MachineHarness()
    harness.acquire("ada", 3)
    assert harness.do(ReleaseHolder(QUEUE, "ada", is_undone=True)) == 3
    assert [one.count for one in harness.acquire("cyd", 3)] == [1]


def test_a_release_for_a_missing_group_releases_nothing() -> None:
    assert MachineHarness().do(ReleaseHolder("missing", "ada")) == 0


def test_a_command_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="str is not a command"):
        MachineHarness().do("deliver!")

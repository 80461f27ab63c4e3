from hypothesis import given
from hypothesis import strategies as st

from penstock.api.core.position_tracker import PartitionPosition, PositionTracker
from penstock.foundation.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHERS = TopicPartition("others", 3)


def test_nothing_is_due_before_the_first_delivery() -> None:
    tracker = PositionTracker()
    tracker.assign([ORDERS])
    assert tracker.due() == {}


def test_an_offset_is_due_when_all_before_it_are_finished() -> None:
    position = PartitionPosition(ORDERS)
    for offset in (5, 6, 9):  # there may be gaps: compaction, markers
        position.deliver(offset)
    assert position.due() == 5
    position.finish(6)
    assert position.due() == 5
    position.finish(5)
    assert position.due() == 9
    position.finish(9)
    assert position.due() == 10
    assert position.unfinished == 0


def test_skipped_messages_count_as_finished() -> None:
    position = PartitionPosition(ORDERS)
    position.skip(3)
    assert position.due() == 4
    position.deliver(4)
    position.skip(5)
    assert position.due() == 4


def test_a_requested_commit_is_not_due_again_unless_it_failed() -> None:
    position = PartitionPosition(ORDERS)
    position.skip(0)
    position.mark_requested()
    assert position.due() is None
    assert position.due(even_if_requested=True) == 1
    position.record_commit(1, is_committed=False)
    assert position.due() == 1
    position.mark_requested()
    position.record_commit(1, is_committed=True)
    assert position.due() is None
    assert position.due(even_if_requested=True) is None


def test_an_older_commit_that_fails_does_not_matter_once_a_newer_one_is_under_way() -> None:
    position = PartitionPosition(ORDERS)
    position.skip(0)
    position.mark_requested()
    position.skip(1)
    position.mark_requested()
    position.record_commit(1, is_committed=False)
    assert position.due() is None
    position.record_commit(2, is_committed=False)
    assert position.due() == 2


def test_rewound_messages_count_as_undelivered() -> None:
    position = PartitionPosition(ORDERS)
    position.skip(0)
    position.mark_requested()
    position.record_commit(1, is_committed=True)
    position.deliver(1)
    position.deliver(2)
    position.finish(1)
    position.rewind()
    assert (position.due(), position.unfinished) == (None, 0)
    position.deliver(1)
    position.finish(1)
    assert position.due() == 2


def test_a_partition_that_went_and_came_back_starts_anew() -> None:
    tracker = PositionTracker()
    tracker.assign([ORDERS, OTHERS])
    before = tracker.position(ORDERS)
    assert before is not None
    before.deliver(7)
    tracker.unassign([ORDERS])
    assert not before.is_assigned
    tracker.assign([ORDERS])
    before.finish(7)
    assert tracker.due() == {}
    after = tracker.position(ORDERS)
    assert after is not before
    assert tracker.position(OTHERS) is not None


def test_due_commits_can_be_limited_to_some_partitions() -> None:
    tracker = PositionTracker()
    tracker.assign([ORDERS, OTHERS])
    for place in (ORDERS, OTHERS):
        position = tracker.position(place)
        assert position is not None
        position.deliver(1)
        position.finish(1)
    assert tracker.due([OTHERS, TopicPartition("gone", 0)]) == {OTHERS: 2}
    tracker.mark_requested({OTHERS: 2})
    assert tracker.due() == {ORDERS: 2}
    tracker.record_commit(OTHERS, 2, is_committed=False)
    assert tracker.due() == {ORDERS: 2, OTHERS: 2}
    tracker.record_commit(TopicPartition("gone", 0), 1, is_committed=True)  # it went meanwhile


def test_losing_what_is_not_ours_is_nothing() -> None:
    tracker = PositionTracker()
    tracker.unassign([ORDERS])
    assert tracker.unfinished == 0


@given(st.data())
def test_the_watermark_never_passes_anything_unfinished(data: st.DataObject) -> None:
    position = PartitionPosition(ORDERS)
    offset = data.draw(st.integers(0, 5))
    unfinished: set[int] = set()
    highest = None
    for _ in range(data.draw(st.integers(0, 40))):
        action = data.draw(st.sampled_from(["deliver", "finish", "skip", "again"]))
        if action in ("deliver", "skip"):
            offset += data.draw(st.integers(1, 3))
            highest = offset
            if action == "skip":
                position.skip(offset)
            else:
                position.deliver(offset)
                unfinished.add(offset)
        elif unfinished:
            chosen = data.draw(st.sampled_from(sorted(unfinished)))
            if action == "again":
                position.deliver(chosen)
            else:
                position.finish(chosen)
                unfinished.remove(chosen)
        expected = min(unfinished) if unfinished else None if highest is None else highest + 1
        assert position.watermark == expected
        assert position.unfinished == len(unfinished)

"""A group with very many offsets is deleted, and loses its topic, in pieces."""

import pytest

from penstock.foundation.decision import NO_PRODUCER, Decision
from penstock.groups.commands import RemoveOffsets, TopicsChanged
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.offsets.committed import Committed
from penstock.groups.topic_changes import TOMBSTONES_AT_ONCE
from tests.unit.groups.coordinator_harness import image_of, settings_of, topic_of

COUNT = 2 * TOMBSTONES_AT_ONCE + 100
GROUP = "readers"


def _apply(coordinator: GroupCoordinator, decision: Decision) -> int:
    for record in decision.persist:
        coordinator.apply(record, NO_PRODUCER)
    return len(decision.persist)


@pytest.fixture
def coordinator() -> GroupCoordinator:
    """Of a group that has committed offsets in many partitions, and has no members."""
    made = GroupCoordinator(settings=settings_of(), image=image_of(topic_of("orders")), new_member_id=str)
    committed = Committed(offset=1, leader_epoch=0, metadata="", committed_ms=0, topic_id=topic_of("orders").topic_id)
    for number in range(COUNT):
        made.apply(committed.to_record(GROUP, "orders", number), NO_PRODUCER)
    made.loaded(0)
    return made


def test_offsets_of_a_group_that_is_to_be_deleted_go_in_pieces(coordinator: GroupCoordinator) -> None:
    counts = []
    while True:
        decision = coordinator.decide(7, RemoveOffsets(group_id=GROUP), 0)
        counts.append(decision.replies[0].value)
        assert _apply(coordinator, decision) == counts[-1]
        if not counts[-1]:
            break
    assert counts == [TOMBSTONES_AT_ONCE, TOMBSTONES_AT_ONCE, 0]
    assert len(coordinator.offsets.partitions_of(GROUP)) == 100, "these can go with the group itself"


def test_offsets_of_a_group_that_is_not_there_are_not_removed(coordinator: GroupCoordinator) -> None:
    with pytest.raises(GroupIdNotFound):
        coordinator.decide(7, RemoveOffsets(group_id="others"), 0)


def test_offsets_of_a_deleted_topic_go_in_pieces(coordinator: GroupCoordinator) -> None:
    coordinator.image = image_of()
    counts, now_ms = [_apply(coordinator, coordinator.decide(-1, TopicsChanged(deleted=frozenset({"orders"})), 0))], 0
    while coordinator.offsets.partitions_of(GROUP):
        assert coordinator.wake_at_ms is not None
        now_ms = max(now_ms, coordinator.wake_at_ms)
        counts.append(_apply(coordinator, coordinator.wake(now_ms)))
    assert [count for count in counts if count] == [TOMBSTONES_AT_ONCE, TOMBSTONES_AT_ONCE, 100]
    assert now_ms < 1000, "the next piece does not wait until what failed is tried again"

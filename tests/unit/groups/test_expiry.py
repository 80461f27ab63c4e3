"""Expiry of offsets, and of empty groups."""

import pytest

from penstock.groups.offsets import expiration
from penstock.wire.messages.offset_commit import OffsetCommitRequest

from .coordinator_harness import (
    GROUP,
    Membership,
    World,
    commit_of,
    heartbeat_of,
    join_of,
    leave_of,
    subscription,
    sync_of,
    txn_commit_of,
)

DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 7 * DAY_MS
CHECK_MS = 600_000


def _places(world: World) -> list[tuple[str, int]]:
    return world.machine.offsets.partitions_of(GROUP)


def _live(world: World, membership: Membership, ms: int) -> None:
    """Time passes, and a member is alive."""
    end_ms = world.now_ms + ms
    while world.now_ms < end_ms:
        world.advance(min(1_700_000, end_ms - world.now_ms))
        world.call(heartbeat_of(membership))


def test_offsets_of_a_standalone_consumer_go_when_they_are_too_old() -> None:
    world = World()
    world.call(commit_of({0: 1}), 9)
    world.advance(RETENTION_MS // 2)
    world.call(commit_of({1: 1}), 9)
    world.advance(RETENTION_MS // 2 + CHECK_MS)
    assert _places(world) == [("orders", 1)]
    world.advance(RETENTION_MS // 2 + CHECK_MS)
    assert not world.machine.groups
    world.restart()
    assert not world.machine.groups


def test_offsets_of_a_group_stay_for_as_long_as_it_has_members_that_read_the_topic() -> None:
    world = World()
    (membership,) = world.stable("a", protocols=[("range", subscription("orders"))], session_ms=1_800_000)
    world.call(commit_of({0: 1}, membership), 9)
    world.call(commit_of({0: 1}, membership, topic="prices"), 9)
    _live(world, membership, RETENTION_MS + CHECK_MS)
    assert _places(world) == [("orders", 0)], "it reads orders, and prices no longer"


def test_offsets_stay_if_what_the_members_read_is_not_known() -> None:
    world = World()
    (membership,) = world.stable("a", session_ms=1_800_000)
    world.call(commit_of({0: 1}, membership), 9)
    _live(world, membership, RETENTION_MS + CHECK_MS)
    assert _places(world) == [("orders", 0)]


def test_offsets_of_a_group_of_another_type_stay_while_it_has_members() -> None:
    world = World()
    (membership,) = world.admit("a", protocol_type="connect", session_ms=1_800_000)
    world.call(sync_of(membership, {}, protocol_type="connect"))
    world.call(commit_of({0: 1}, membership), 9)
    _live(world, membership, RETENTION_MS + CHECK_MS)
    assert _places(world) == [("orders", 0)]


def test_the_time_of_a_groups_offsets_runs_from_when_it_became_empty() -> None:
    world = World()
    (membership,) = world.stable("a", protocols=[("range", subscription("orders"))], session_ms=1_800_000)
    world.call(commit_of({0: 1}, membership), 9)
    _live(world, membership, RETENTION_MS // 2)
    world.call(leave_of(membership.member_id))
    world.restart()
    world.advance(RETENTION_MS - 1)
    assert _places(world) == [("orders", 0)]
    world.advance(CHECK_MS + 1)
    assert not world.machine.groups


def test_offsets_do_not_go_during_a_rebalance() -> None:
    world = World(session_timeout_max_ms=2 * RETENTION_MS)
    patient = {"session_ms": 2 * RETENTION_MS, "rebalance_ms": 2 * RETENTION_MS}
    leader, _ = world.stable("a", "b", protocols=[("range", subscription("orders"))], **patient)
    world.call(commit_of({0: 1}, leader, topic="prices"), 9)
    world.submit(join_of(leader.member_id, protocols=[("range", subscription("orders"))], **patient))
    world.advance(RETENTION_MS + CHECK_MS)
    assert world.state == "PreparingRebalance"
    assert _places(world) == [("prices", 0)]


def test_an_empty_group_without_offsets_is_gone_at_the_next_look() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    world.advance(CHECK_MS)
    assert not world.machine.groups
    world.restart()
    assert not world.machine.groups


def test_an_empty_group_with_a_pending_member_stays() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    world.advance(CHECK_MS - world.now_ms % CHECK_MS)
    member_id = world.call(join_of(session_ms=1_800_000)).member_id
    world.advance(CHECK_MS)
    assert member_id in world.group.pending


def test_offsets_that_a_transaction_is_about_to_change_stay() -> None:
    world = World()
    world.call(commit_of({0: 1, 1: 1}), 9)
    world.call(txn_commit_of({0: 2}))
    world.advance(RETENTION_MS + CHECK_MS)
    assert _places(world) == [("orders", 0)]
    world.end_transaction(1, committed=False)
    world.advance(CHECK_MS)
    assert not world.machine.groups


def test_a_group_with_nothing_but_a_transaction_stays() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(txn_commit_of({0: 2}, membership))
    world.call(leave_of(membership.member_id))
    world.advance(CHECK_MS)
    assert world.state == "Empty"
    assert world.group.is_stored


def test_old_clients_say_themselves_how_long_their_offsets_are_kept() -> None:
    world = World()
    request = commit_of({0: 1})
    kept = OffsetCommitRequest(group_id=GROUP, member_id="", retention_time_ms=DAY_MS, topics=request.topics)
    world.call(kept, 4)
    world.restart()
    world.advance(DAY_MS - 1)
    assert _places(world) == [("orders", 0)]
    world.advance(CHECK_MS)
    assert not world.machine.groups


def test_an_expiry_that_cannot_be_persisted_is_repeated() -> None:
    world = World()
    world.call(commit_of({0: 1}), 9)
    world.can_persist = False
    world.advance(RETENTION_MS + CHECK_MS)
    assert _places(world) == [("orders", 0)]
    world.can_persist = True
    world.advance(CHECK_MS)
    assert not world.machine.groups


def test_a_look_at_many_groups_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiration, "OFFSETS_AT_ONCE", 3)
    world = World()
    for number in range(10):
        world.call(commit_of({0: 1}, group_id=f"group-{number}"), 9)
    world.advance(RETENTION_MS - world.settings.offsets_check_interval_ms)
    while len(world.machine.groups) == 10:
        assert world.machine.wake_at_ms is not None
        world.now_ms = world.machine.wake_at_ms
        world.carry_out(world.machine.wake(world.now_ms))
    assert len(world.machine.groups) == 8, "a group and its offset count two"
    world.advance(10)
    assert not world.machine.groups


def test_all_offsets_of_a_large_group_expire_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiration, "EXPIRED_AT_ONCE", 1)
    world = World()
    start_ms = world.now_ms
    world.call(commit_of({0: 1, 1: 1, 2: 1}), 9)
    world.advance(RETENTION_MS - world.settings.offsets_check_interval_ms)
    assert len(_places(world)) == 3
    slices = []
    while world.machine.groups:
        assert world.machine.wake_at_ms is not None
        world.now_ms = world.machine.wake_at_ms
        decision = world.machine.wake(world.now_ms)
        assert len(set(decision.persist)) == len(decision.persist)
        slices += [len(decision.persist)] if decision.persist else []
        world.carry_out(decision)
    assert slices == [1, 1, 1], "three offsets"
    assert world.now_ms - start_ms < RETENTION_MS + CHECK_MS, "the next pass would come later"

"""A follower's log: the leader's batches, with epochs and producer state."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import CorruptMessage, StorageError
from penstock.log.disk import OsDisk
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.replication.follower import Following
from penstock.replication.follower_fetch import epoch_divergence
from penstock.wire.messages.fetch import FetchPartition
from tests.examples import examples
from tests.simulation.disk import FakeDisk, Killed

from .builders import ENDLESS, NOW_MS, all_records, append, open_at, values_in, write
from .test_transactions_recovered import SMALL, facts, filled


def copy(leader: Log, follower: Log, max_bytes: int = 700) -> None:
    while data := leader.read(follower.end_offset, max_bytes, leader.end_offset, blocking=True):
        follower.append_replica(data, NOW_MS)


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in all_records(log)]


@pytest.mark.parametrize("max_bytes", [1, 700, 1 << 20])
def test_a_copy_is_the_same_log_and_knows_the_same(max_bytes: int) -> None:
    leader, follower = filled(MemoryDisk()), open_at(**SMALL)
    copy(leader, follower, max_bytes)
    assert all_records(follower) == all_records(leader)
    assert facts(follower) == facts(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert len(follower.segments) > 2


def test_a_copy_is_the_same_after_a_restart(tmp_path: Path) -> None:
    leader, disk = filled(MemoryDisk()), OsDisk(tmp_path)
    follower = open_at(disk, **SMALL)
    copy(leader, follower)
    follower.abandon()
    again = open_at(OsDisk(tmp_path), **SMALL)
    assert all_records(again) == all_records(leader)
    assert facts(again) == facts(leader)


def test_a_batch_that_is_damaged_on_the_way_is_not_taken_and_what_came_before_is() -> None:
    leader, follower = open_at(), open_at()
    for value in (b"one", b"two", b"three"):
        append(leader, value)
    data = bytearray(leader.read(0, 1 << 20, ENDLESS, blocking=True))
    data[-2] ^= 1
    with pytest.raises(CorruptMessage):
        follower.append_replica(data, NOW_MS)
    assert values(follower) == [b"one", b"two"]
    copy(leader, follower)
    assert values(follower) == [b"one", b"two", b"three"]


def test_a_batch_that_is_cut_off_is_left_for_the_next_time() -> None:
    leader, follower = open_at(), open_at()
    append(leader, b"one")
    append(leader, b"two")
    data = leader.read(0, 1 << 20, ENDLESS, blocking=True)
    follower.append_replica(data[: len(data) - 3], NOW_MS)
    assert values(follower) == [b"one"]


def test_batches_that_exist_are_not_appended_again() -> None:
    leader, follower = open_at(), open_at()
    append(leader, b"one")
    copy(leader, follower)
    with pytest.raises(StorageError, match="ends at offset 1, but the leader sent offset 0"):
        follower.append_replica(leader.read(0, 1 << 20, ENDLESS, blocking=True), NOW_MS)


def test_gaps_that_compaction_left_are_taken_over(tmp_path: Path) -> None:
    source, follower = open_at(), open_at(OsDisk(tmp_path))
    append(source, b"one")
    append(source, b"two")
    append(source, b"three")
    whole = source.read(0, 1 << 20, ENDLESS, blocking=True)
    size = len(whole) // 3
    follower.append_replica(whole[:size], NOW_MS)
    follower.append_replica(whole[len(whole) - len(source.read(2, 1 << 20, ENDLESS, blocking=True)) :], NOW_MS)
    assert [record.offset for record in all_records(follower)] == [0, 2]
    follower.abandon()
    assert [record.offset for record in all_records(open_at(OsDisk(tmp_path)))] == [0, 2]


@pytest.mark.parametrize("operations", range(1, 10))
def test_a_follower_killed_at_a_gap_keeps_what_comes_after_it(operations: int) -> None:
    """The leader has compacted what is between. The follower is killed at the gap, and later, far behind it."""
    source, disk = open_at(), FakeDisk(Random(operations))
    for number in range(6):
        append(source, b"%d" % number)
    follower = open_at(disk)
    follower.append_replica(bytes(source.read(0, 1, 1, blocking=True)), NOW_MS)
    disk.die_after(operations)
    with suppress(Killed):
        follower.append_replica(bytes(source.read(2, 1, 3, blocking=True)), NOW_MS)
    disk.restart()
    again = open_at(disk)
    assert again.end_offset in (1, 3)
    again.append_replica(bytes(source.read(max(2, again.end_offset), 1 << 20, ENDLESS, blocking=True)), NOW_MS)
    disk.restart()
    assert [record.offset for record in all_records(open_at(disk))] == [0, 2, 3, 4, 5]


def test_a_log_that_is_too_late_begins_anew_behind_its_end(tmp_path: Path) -> None:
    follower = open_at(OsDisk(tmp_path), **SMALL)
    write(follower, 7, 0, b"x" * 900)
    append(follower, b"y" * 900)
    follower.restart(5_000_000_000, NOW_MS)
    assert (follower.start_offset, follower.end_offset) == (5_000_000_000, 5_000_000_000)
    assert follower.producers.open.first_offset is None
    follower.abandon()
    again = open_at(OsDisk(tmp_path), **SMALL)
    assert (again.start_offset, again.end_offset) == (5_000_000_000, 5_000_000_000)
    assert append(again, b"z").base_offset == 5_000_000_000


def test_an_empty_log_can_begin_elsewhere() -> None:
    follower = open_at()
    follower.restart(17, NOW_MS)
    assert append(follower, b"z").base_offset == 17
    assert values_in(follower) == [b"z"]


# -- where two logs part

STEPS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=6)


def reconcile(leader: Log, following: Following) -> None:
    """What a follower and its leader do, until the one is the other."""
    for _ in range(50):
        offset, epoch = following.position
        wanted = FetchPartition(
            partition=0, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20
        )
        divergence = epoch_divergence(leader, wanted)
        if divergence is not None:
            following.truncate(following.diverged_at(divergence.epoch, divergence.end_offset), NOW_MS)
        elif offset < leader.end_offset:
            data = leader.read(offset, 300, leader.end_offset, blocking=True)
            following.take(data, leader.end_offset, leader.start_offset, NOW_MS)
        else:
            return
    pytest.fail("they do not come together")


@examples(150, deadline=None)
@given(STEPS, STEPS, st.integers(0, 10))
def test_logs_of_different_leaders_become_one(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]], shared: int
) -> None:
    """Each leader has epochs of its own, all after what both have."""
    leader, follower = open_at(), open_at()
    for number in range(shared):
        for log in (leader, follower):
            append(log, b"shared %d" % number, epoch=1)
    # An epoch is one leader's: these take the odd ones, those the even ones.
    for log, steps, name, parity in ((leader, mine, b"mine", 0), (follower, theirs, b"theirs", 1)):
        epoch = 2 + parity
        for jump, count in steps:
            epoch += 2 * jump
            for number in range(count):
                append(log, b"%s %d %d" % (name, epoch, number), epoch=epoch)
    # The leader has the newest epoch.
    leader.note_epoch(1000, leader.end_offset)
    following = Following(follower, 0)
    reconcile(leader, following)
    assert all_records(follower) == all_records(leader)
    assert values(follower)[:shared] == [b"shared %d" % number for number in range(shared)]


def test_a_follower_is_committed_as_far_as_its_leader_says_and_it_has() -> None:
    leader, following = open_at(), Following(open_at(), 0)
    for value in (b"one", b"two", b"three"):
        append(leader, value)
    data = leader.read(0, 1, ENDLESS, blocking=True)
    following.take(data, 3, 0, NOW_MS)
    assert following.high_watermark == 1
    following.take(leader.read(1, 1 << 20, ENDLESS, blocking=True), 2, 0, NOW_MS)
    assert following.high_watermark == 2
    following.take(b"", 1, 0, NOW_MS)
    assert following.high_watermark == 2


def test_records_that_the_leader_has_trimmed_are_removed() -> None:
    leader, following = open_at(), Following(open_at(), 0)
    for value in (b"one", b"two", b"three"):
        append(leader, value)
    copy(leader, following.log)
    following.take(b"", 3, 2, NOW_MS)
    assert following.log.start_offset == 2
    following.restart_at(9, NOW_MS)
    assert (following.position.offset, following.high_watermark) == (9, 9)

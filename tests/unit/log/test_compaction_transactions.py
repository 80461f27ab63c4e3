"""Compaction and transactions: aborted records go, open ones stay, markers stay while they are needed."""

from contextlib import suppress
from random import Random

import pytest

from penstock.foundation.errors import InvalidProducerEpoch, OutOfOrderSequence
from penstock.log import compaction
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.records.build import Record, build_batch
from tests.simulation.disk import FakeDisk, Killed

from .builders import (
    FOLDER,
    NOW_MS,
    all_records,
    committed_records,
    committed_values,
    end,
    headers_from,
    sent,
    sync,
)
from .compacted_logs import SECRET, compact, compacted_log, end_segment, install, planned, put

RETENTION_MS = 5000
LATER_MS = NOW_MS + RETENTION_MS
EVEN_LATER_MS = LATER_MS + RETENTION_MS + 1


def log_with(disk: MemoryDisk | FakeDisk | None = None, **values: object) -> Log:
    return compacted_log(disk, delete_retention_ms=RETENTION_MS, **values)


def add(log: Log, producer_id: int, sequence: int, *pairs: tuple[str, bytes], epoch: int = 0) -> int:
    """Append keys and values in a producer's transaction."""
    data = build_batch(
        [Record(key=key.encode(), value=value, timestamp_ms=NOW_MS) for key, value in pairs],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    return log.append(data, 0, NOW_MS, may_begin=True).base_offset


def again(log: Log, now_ms: int) -> None:
    """Another pass over everything: something new has come."""
    put(log, ("unrelated", b"%d" % now_ms))
    end_segment(log)
    compact(log, now_ms=now_ms)


def shape(log: Log) -> list[tuple[int, int, bool, int]]:
    """Each batch in the closed segments, but for unrelated ones: offset, producer, whether a marker, records."""
    return [
        (header.base_offset, header.producer_id, header.is_control, header.count)
        for segment in log.segments[:-1]
        for _, header in segment.headers()
        if header.producer_id >= 0
    ]


# -- which records stay


def test_records_of_aborted_transactions_go_and_hide_nothing() -> None:
    log = log_with()
    put(log, ("a", b"1"), ("b", b"1"))
    add(log, 7, 0, ("a", b"bad"), ("c", b"bad"))
    end(log, 7, False)
    end_segment(log)
    result = compact(log)
    assert committed_values(log) == [b"1", b"1"]
    assert [record.value for record in all_records(log) if record.key in (b"a", b"b", b"c")] == [b"1", b"1"]
    assert (result.records_before, result.records_after) == (4, 2)


def test_records_of_committed_transactions_are_like_others() -> None:
    log = log_with()
    put(log, ("a", b"1"), ("b", b"1"))
    add(log, 7, 0, ("a", b"2"))
    end(log, 7, True)
    put(log, ("b", b"3"))
    end_segment(log)
    compact(log)
    assert committed_values(log) == [b"2", b"3"]


def test_records_aborted_segments_later_are_removed_too() -> None:
    """Its marker lies behind all that is compacted."""
    log = log_with()
    put(log, ("a", b"1"))
    add(log, 7, 0, ("a", b"bad"))
    end_segment(log)
    put(log, ("b", b"1"))
    end_segment(log)
    put(log, ("c", b"1"))
    end(log, 7, False)
    compact(log)
    assert committed_values(log) == [b"1", b"1", b"1"]
    assert b"bad" not in [record.value for record in all_records(log)]
    assert [found.producer_id for found in log.aborted_between(0, log.end_offset)] == [7]


def test_transactions_of_one_producer_have_each_their_own_end() -> None:
    log = log_with()
    for number, commit in enumerate((True, False, True, False, False, True)):
        add(log, 7, number, (f"key {number}", b"%d" % number))
        end(log, 7, commit)
        if number == 2:
            end_segment(log)
    end_segment(log)
    compact(log)
    assert committed_values(log) == [b"0", b"2", b"5"]


def test_a_commit_after_an_abort_replaces_older_records() -> None:
    log = log_with()
    put(log, ("a", b"old"), ("b", b"old"))
    add(log, 7, 0, ("a", b"bad"))
    end(log, 7, False)
    add(log, 7, 1, ("b", b"new"))
    end(log, 7, True)
    end_segment(log)
    compact(log)
    assert [record.value for record in all_records(log) if record.key in (b"a", b"b")] == [b"old", b"new"]


def test_nothing_from_the_first_open_transaction_on_is_touched() -> None:
    log = log_with()
    put(log, ("a", b"1"))
    put(log, ("a", b"2"))
    end_segment(log)
    put(log, ("a", b"3"))
    add(log, 7, 0, ("a", b"open"))
    end_segment(log)
    put(log, ("a", b"4"))
    end_segment(log)
    compact(log)
    assert [record.value for record in all_records(log)] == [b"2", b"3", b"open", b"4"]
    assert planned(log) is None
    end(log, 7, True)
    compact(log)
    assert [record.value for record in all_records(log) if record.key == b"a"] == [b"4"]


def test_a_transaction_counts_as_ended_when_its_marker_is_committed() -> None:
    log = log_with()
    add(log, 7, 0, ("a", b"1"))
    put(log, ("a", b"2"))
    end_segment(log)
    marker = end(log, 7, False)
    assert planned(log, limit=marker) is None
    assert planned(log, limit=marker + 1) is not None


def test_a_transaction_counts_as_ended_when_power_loss_cannot_undo_it() -> None:
    """What is compacted is gone for good: a marker that may be lost must not be the reason."""
    log = log_with()
    put(log, ("a", b"1"))
    add(log, 7, 0, ("a", b"2"))
    end_segment(log)
    sync(log)
    end(log, 7, True)
    assert compaction.plan(log, NOW_MS, log.end_offset, 1000, SECRET) is None
    sync(log)
    assert compaction.plan(log, NOW_MS, log.end_offset, 1000, SECRET) is not None


def test_after_a_kill_the_next_sync_tells_which_markers_are_safe() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    add(log, 7, 0, ("a", b"2"))
    end_segment(log)
    sync(log)
    end(log, 7, True)
    killed = log_with(disk)
    assert compaction.plan(killed, NOW_MS, killed.end_offset, 1000, SECRET) is None
    assert killed.has_unsynced_segments, "or it would wait until the next one is closed"
    sync(killed)
    assert not killed.has_unsynced_segments
    assert compaction.plan(killed, NOW_MS, killed.end_offset, 1000, SECRET) is not None
    killed.close()
    orderly = log_with(disk)
    assert compaction.plan(orderly, NOW_MS, orderly.end_offset, 1000, SECRET) is not None


def test_a_log_without_transactions_is_compacted_after_a_kill() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    put(log, ("a", b"1"))
    log.append(sent(7, 0, b"2", key=b"a"), 0, NOW_MS)
    end_segment(log)
    sync(log)
    put(log, ("a", b"3"))
    killed = log_with(disk)
    assert not killed.has_unsynced_segments
    assert compaction.plan(killed, NOW_MS, killed.end_offset, 1000, SECRET) is not None


# -- which markers stay


def test_a_marker_stays_while_there_is_a_batch_of_its_transaction() -> None:
    log = log_with()
    add(log, 7, 0, ("a", b"1"))
    end(log, 7, True)
    end_segment(log)
    for now_ms in (NOW_MS, LATER_MS, EVEN_LATER_MS):
        again(log, now_ms)
        assert shape(log) == [(0, 7, False, 1), (1, 7, True, 1)]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_some_time_after_the_last_batch_of_its_transaction(commit: bool) -> None:
    """KIP-534: the pass that finds nothing of it any more says when, counted from then."""
    log = log_with()
    add(log, 7, 0, ("a", b"1"))
    end(log, 7, commit)
    add(log, 7, 1, ("a", b"2"))
    end(log, 7, True)
    end_segment(log)
    compact(log)
    assert shape(log)[0] == (1, 7, True, 1), "its batch went just now"
    (first, *_) = headers_from(log, 1)
    assert first.delete_horizon_ms is None
    again(log, NOW_MS)
    (first, *_) = headers_from(log, 1)
    assert (first.base_offset, first.is_control, first.delete_horizon_ms) == (1, True, LATER_MS)
    assert first.max_timestamp == NOW_MS
    again(log, LATER_MS - 1)
    assert shape(log)[0] == (1, 7, True, 1)
    again(log, LATER_MS)
    assert shape(log) == [(2, 7, False, 1), (3, 7, True, 1)]
    assert committed_values(log)[0] == b"2"


def test_with_the_batches_of_an_aborted_transaction_goes_its_entry() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    add(log, 7, 0, ("a", b"1"))
    end(log, 7, False)
    add(log, 7, 1, ("a", b"2"))
    end(log, 7, True)
    end_segment(log)
    assert log.segments[0].aborted.count == 1
    compact(log)
    assert [found.producer_id for found in log.aborted_between(0, log.end_offset)] == [7], "its batch went just now"
    again(log, NOW_MS)
    assert log.aborted_between(0, log.end_offset) == []
    assert committed_values(log)[0] == b"2"


def test_a_control_batch_of_no_transaction_stays() -> None:
    log = log_with()
    put(log, ("a", b"1"))
    log.append_own(build_batch([Record(key=b"k", value=b"v", timestamp_ms=NOW_MS)], control=True), 0, NOW_MS)
    end_segment(log)
    for now_ms in (NOW_MS, LATER_MS, EVEN_LATER_MS):
        again(log, now_ms)
    assert any(header.is_control for header in headers_from(log, 1))


# -- producers


def test_the_last_batch_of_a_producer_keeps_its_place_though_it_was_aborted() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    add(log, 7, 0, ("a", b"1"), ("b", b"1"))
    end(log, 7, False)
    end_segment(log)
    for now_ms in (NOW_MS, LATER_MS, EVEN_LATER_MS):
        again(log, now_ms)
        assert shape(log) == [(0, 7, False, 0), (2, 7, True, 1)]
    reread = log_without_snapshots(disk)
    assert reread.producers.by_id[7].batches[-1].last_sequence == 1
    assert not reread.producers.is_in_transaction(7, 0), "the marker ends the empty batch's transaction too"
    with pytest.raises(OutOfOrderSequence):
        add(reread, 7, 1, ("a", b"2"))
    add(reread, 7, 2, ("a", b"2"))


def log_without_snapshots(disk: MemoryDisk) -> Log:
    for name in disk.names(FOLDER):
        if name.endswith(".producers"):
            disk.remove(f"{FOLDER}/{name}")
    return log_with(disk, boot="boot-2")


def test_a_marker_stays_if_only_it_tells_the_epoch_of_a_producer() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    add(log, 7, 0, ("a", b"1"))
    end(log, 7, True, epoch=1)
    put(log, ("a", b"2"))
    end_segment(log)
    for now_ms in (NOW_MS, LATER_MS, EVEN_LATER_MS):
        again(log, now_ms)
    assert shape(log) == [(1, 7, True, 1)]
    with pytest.raises(InvalidProducerEpoch):
        add(log_without_snapshots(disk), 7, 1, ("a", b"late"))
    log.producers.expire(NOW_MS + 1)
    again(log, EVEN_LATER_MS)
    again(log, EVEN_LATER_MS + RETENTION_MS)
    assert shape(log) == []


def test_a_marker_with_a_producers_epoch_stays_though_newer_ones_follow_the_compacted_range() -> None:
    """The newer may yet be lost, or taken back."""
    log = log_with()
    add(log, 7, 0, ("a", b"1"))
    end(log, 7, True, epoch=1)
    put(log, ("a", b"2"))
    end_segment(log)
    add(log, 7, 0, ("b", b"1"), epoch=1)
    newest = end(log, 7, True, epoch=2)
    compact(log)
    compacted = [header for segment in log.segments[:-1] for _, header in segment.headers()]
    assert [(header.base_offset, header.producer_epoch) for header in compacted if header.is_control] == [(1, 1)]
    log.truncate(newest - 1, NOW_MS)
    assert log.producers.by_id[7].epoch == 1


def test_a_transaction_that_was_open_at_a_snapshot_does_not_come_back_when_its_marker_is_gone() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    add(log, 7, 0, ("a", b"1"))
    put(log, ("large", b"x" * 800))
    end_segment(log)  # with a snapshot, in which the transaction is open
    put(log, ("large too", b"x" * 800))
    end(log, 7, True, epoch=1)
    put(log, ("a", b"2"))
    end_segment(log)
    log.producers.expire(NOW_MS + 1)
    for now_ms in (NOW_MS, LATER_MS, EVEN_LATER_MS):
        again(log, now_ms)
    assert shape(log) == [], "neither batch nor marker"
    assert log.segments[1].base_offset == 2, "or the snapshot would have gone with its segment"
    for name in disk.names(FOLDER):
        if name.endswith(".producers") and name != f"{2:020d}.producers":
            disk.store(f"{FOLDER}/{name}", b"power loss")
    reread = log_with(disk, boot="boot-2")
    assert reread.producers.open.first_offset is None
    assert reread.last_stable_offset(reread.end_offset) == reread.end_offset


# -- the exchange


def history(log: Log) -> dict[bytes, bytes]:
    """Committed and aborted transactions over several segments, and what counts of them."""
    for number in range(24):
        producer = number % 4
        add(log, producer, 2 * (number // 4), (f"key {number % 6}", b"%0100d" % number))
        put(log, (f"plain {number % 5}", b"%0100d" % number))
        add(log, producer, 2 * (number // 4) + 1, (f"other {number % 3}", b"%0100d" % number))
        end(log, producer, number % 5 != 0)
    end_segment(log)
    return counting(log)


def counting(log: Log) -> dict[bytes, bytes]:
    """The table that a consumer of committed records builds."""
    return {record.key: record.value for record in committed_records(log) if record.key and record.value}


def test_lists_of_joined_segments_are_joined() -> None:
    log = log_with()
    for number in range(3):
        add(log, number, 0, ("a", b"x"))
        end(log, number, False)
        end_segment(log)
    put(log, ("b", b"1"))
    end_segment(log)
    compact(log)
    assert len(log.segments) == 2
    assert log.segments[0].aborted.count == 3
    assert [found.producer_id for found in log.aborted_between(0, log.end_offset)] == [0, 1, 2]
    assert committed_values(log) == [b"1"]


def test_a_kill_anywhere_in_the_exchange_leaves_the_old_or_the_new_lists() -> None:
    expected = history(log_with())
    for operations in range(1, 70):
        disk = FakeDisk(Random(operations))
        log = log_with(disk)
        assert history(log) == expected
        job = planned(log)
        assert job is not None
        disk.die_after(operations)
        with suppress(Killed):
            install(job, log, job.run())
        disk.restart()
        found = log_with(disk)
        assert counting(found) == expected
        found.close()
        disk.restart()
        assert counting(log_with(disk)) == expected


def test_power_loss_anywhere_in_the_exchange_leaves_the_old_or_the_new_lists() -> None:
    expected = history(log_with())
    for seed in range(70):
        disk = FakeDisk(Random(seed))
        log = log_with(disk)
        history(log)
        job = planned(log)
        assert job is not None
        disk.die_after(1 + seed)
        with suppress(Killed):
            install(job, log, job.run())
        disk.lose_power()
        assert counting(log_with(disk, boot="boot-2")) == expected


def test_an_exchange_that_does_not_come_about_leaves_no_lists_behind() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    history(log)
    job = planned(log)
    assert job is not None
    result = job.run()
    log.trim(log.segments[1].base_offset)
    assert not install(job, log, result)
    assert not [name for name in disk.names(FOLDER) if name.endswith(".cleaned")]


def test_a_segment_that_goes_while_it_is_compacted_leaves_nothing_behind() -> None:
    disk = MemoryDisk()
    log = log_with(disk)
    history(log)
    job = planned(log)
    assert job is not None
    gone = log.segments[0].base_offset
    log.trim(log.segments[1].base_offset)
    job.discard(job.run())
    assert not [name for name in disk.names(FOLDER) if name.startswith(f"{gone:020d}")]


def test_several_passes_with_few_keys_each_lose_nothing() -> None:
    log = log_with()
    expected = history(log)
    while (job := planned(log, keys_max=3)) is not None:
        assert install(job, log, job.run())
        assert counting(log) == expected
    assert len(all_records(log)) < 24 * 4


def test_a_batch_is_known_again_though_compaction_took_its_latest_record() -> None:
    """Recovery knows only the timestamps of what is left."""
    disk = FakeDisk(Random(1))
    log = log_with(disk)
    records = [Record(key=key, value=b"1", timestamp_ms=NOW_MS + at) for at, key in enumerate((b"a", b"b"))]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    repeated = bytearray(batch)
    log.append(batch, 0, NOW_MS, may_begin=True)
    end(log, 7, True)
    put(log, ("b", b"2"))
    end_segment(log)
    compact(log)
    assert [header.count for header in headers_from(log, 0) if header.base_offset == 0] == [1]
    sync(log)
    for name in disk.names(FOLDER):
        if name.endswith(".producers"):
            disk.remove(f"{FOLDER}/{name}")
    disk.restart()
    assert log_with(disk).append(repeated, 0, NOW_MS).repeated


def test_a_transaction_that_truncation_opens_again_is_not_compacted() -> None:
    """Its end was synced, and was cut off: what ends it next is not known to survive power loss."""
    log = log_with()
    add(log, 7, 0, ("a", b"1"))
    put(log, ("a", b"2"))
    end_segment(log)
    end(log, 7, True)
    sync(log)
    assert log.durable_stable_offset == 3
    log.truncate(2, NOW_MS)
    assert log.durable_stable_offset == 0
    end(log, 7, False)
    end_segment(log)
    assert planned_without_sync(log) is None
    sync(log)
    assert planned_without_sync(log) is not None


def planned_without_sync(log: Log) -> compaction.Job | None:
    return compaction.plan(log, NOW_MS, log.end_offset, 1000, SECRET)

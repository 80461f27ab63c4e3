"""Transactions after a restart, a kill, power loss, damage and truncation."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from penstock.foundation.errors import StorageError
from penstock.log.aborted import ENTRY_BYTES
from penstock.log.disk import OsDisk
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.transactions import AbortedTransaction
from tests.simulation.disk import FakeDisk, Killed

from .builders import FOLDER, NOW_MS, FullDisk, append, committed_values, end, open_at, sync, write

OTHER_BOOT = "boot-2"
SMALL = {"segment_bytes": 1024, "index_interval_bytes": 100}


def filled(disk: OsDisk | MemoryDisk | FakeDisk) -> Log:
    """Five transactions, two of them aborted and one open, over several segments."""
    log = open_at(disk, **SMALL)
    for number in range(5):
        write(log, number, 0, b"%d first %0300d" % (number, 0))
        append(log, b"plain %d %0300d" % (number, 0))
        write(log, number, 1, b"%d second %0300d" % (number, 0))
        if number < 4:
            end(log, number, number % 2 == 0, coordinator=number)
    return log


def seen(log: Log) -> list[bytes]:
    return [b" ".join(value.split()[:2]) for value in committed_values(log) if value is not None]


EXPECTED = [b"0 first", b"plain 0", b"0 second", b"plain 1", b"2 first", b"plain 2", b"2 second", b"plain 3"]


def facts(log: Log) -> tuple[object, ...]:
    """All that a log knows about transactions."""
    producers = {
        known: (found.epoch, found.first_offset, found.coordinator_epoch)
        for known, found in log.producers.by_id.items()
    }
    return (
        log.producers.open.first_offset,
        log.last_stable_offset(log.end_offset),
        log.aborted_between(0, log.end_offset),
        log.newest_abort,
        log.has_transactions,
        producers,
    )


def paths(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob("*.aborted"))


# -- restarts


@pytest.mark.parametrize("orderly", [True, False])
def test_a_restart_changes_nothing(tmp_path: Path, orderly: bool) -> None:
    log = filled(OsDisk(tmp_path))
    before = facts(log)
    assert seen(log) == EXPECTED
    assert [(found.producer_id, found.first_offset) for found in log.aborted_between(0, 99)] == [(1, 4), (3, 12)]
    (log.close if orderly else log.abandon)()
    again = open_at(OsDisk(tmp_path), **SMALL)
    assert facts(again) == before
    assert seen(again) == EXPECTED
    assert again.producers.is_in_transaction(4, 0)
    end(again, 4, True)
    assert seen(again) == [*EXPECTED, b"4 first", b"plain 4", b"4 second"]


def test_a_machine_that_stopped_changes_nothing_that_was_synced(tmp_path: Path) -> None:
    log = filled(OsDisk(tmp_path))
    before = facts(log)
    sync(log)
    log.abandon()
    assert facts(open_at(OsDisk(tmp_path), boot=OTHER_BOOT, **SMALL)) == before


def test_a_log_in_which_all_is_decided_and_committed_counts_as_plain() -> None:
    disk = MemoryDisk()
    log = open_at(disk)
    write(log, 7, 0, b"a")
    end(log, 7, True)
    log.last_stable_offset(log.end_offset)
    log.close()
    assert not open_at(disk).has_transactions


def test_the_epoch_and_the_coordinator_of_a_producer_are_remembered(tmp_path: Path) -> None:
    log = open_at(OsDisk(tmp_path))
    write(log, 7, 0, b"a")
    end(log, 7, True, epoch=1, coordinator=9)
    log.abandon()
    known = open_at(OsDisk(tmp_path)).producers.by_id[7]
    assert (known.epoch, known.coordinator_epoch, known.first_offset, list(known.batches)) == (1, 9, -1, [])


# -- kills


def test_a_kill_anywhere_leaves_a_transaction_open_or_aborted() -> None:
    """Ended by a marker that is in the log, and listed if it is; for a kill during a write to any file."""
    for operations in range(1, 60):
        disk = FakeDisk(Random(operations))
        log = open_at(disk, **SMALL)
        write(log, 7, 0, b"x" * 500)
        write(log, 8, 0, b"y" * 500)
        log.save_checkpoint()
        disk.die_after(operations)
        ended: list[int] = []
        with suppress(Killed):
            for producer_id in (7, 8):
                end(log, producer_id, False)
                ended.append(producer_id)
                append(log, b"z" * 600)
        disk.restart()
        again = open_at(disk, **SMALL)
        gone = [known for known in (7, 8) if not again.producers.is_in_transaction(known, 0)]
        assert set(ended) <= set(gone)
        assert [found.producer_id for found in again.aborted_between(0, again.end_offset)] == gone
        assert not [value for value in committed_values(again) if value and value[:1] in (b"x", b"y")]
        for producer_id in {7, 8} - set(gone):
            end(again, producer_id, True)
        kept = [value[:1] for value in committed_values(again) if value is not None]
        assert sorted(set(kept) - {b"z"}) == [name for known, name in ((7, b"x"), (8, b"y")) if known not in gone]


def test_an_entry_whose_marker_was_not_written_is_cut_off(tmp_path: Path) -> None:
    log = filled(OsDisk(tmp_path))
    before = facts(log)
    log.segments[-1].aborted.add(AbortedTransaction(4, 16, log.end_offset, 99))
    log.abandon()
    again = open_at(OsDisk(tmp_path), **SMALL)
    assert facts(again) == before
    end(again, 4, True)
    assert seen(again)[-1] == b"4 second"


def test_leftovers_of_a_removed_segment_are_deleted(tmp_path: Path) -> None:
    filled(OsDisk(tmp_path)).close()
    for kind in ("aborted", "index"):
        (tmp_path / FOLDER / f"{77:020d}.{kind}").write_bytes(b"x" * 40)
        (tmp_path / FOLDER / f"notes.{kind}").write_bytes(b"mine")
    log = open_at(OsDisk(tmp_path), **SMALL)
    names = {path.name for path in (tmp_path / FOLDER).iterdir()}
    assert not [name for name in names if name.startswith(f"{77:020d}")]
    assert {"notes.aborted", "notes.index"} <= names
    assert seen(log) == EXPECTED


# -- damage


@pytest.mark.parametrize("boot", ["boot-1", OTHER_BOOT])
@pytest.mark.parametrize("at", [0, 20, 35])
def test_a_damaged_list_is_made_anew(tmp_path: Path, boot: str, at: int) -> None:
    log = filled(OsDisk(tmp_path))
    before = facts(log)
    log.close()
    for path in paths(tmp_path):
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(bytes(data))
    again = open_at(OsDisk(tmp_path), boot=boot, **SMALL)
    assert facts(again) == before
    assert seen(again) == EXPECTED
    again.close()
    assert facts(open_at(OsDisk(tmp_path), **SMALL)) == before


def test_a_damaged_list_is_made_anew_though_the_snapshot_before_it_is_gone_too(tmp_path: Path) -> None:
    log = filled(OsDisk(tmp_path))
    before = facts(log)
    log.close()
    first, *_ = paths(tmp_path)
    first.write_bytes(first.read_bytes()[:-1])
    for path in sorted((tmp_path / FOLDER).glob("*.producers"))[:-1]:
        path.unlink()
    assert facts(open_at(OsDisk(tmp_path), **SMALL)) == before


def test_power_loss_may_take_a_list_that_was_not_synced(tmp_path: Path) -> None:
    """The markers survived, or some of them: what they aborted is found from them."""
    for size in range(ENTRY_BYTES + 2):
        folder = tmp_path / str(size)
        log = filled(OsDisk(folder))
        before = facts(log)
        log.save_checkpoint()
        log.abandon()
        for path in paths(folder):
            path.write_bytes((path.read_bytes()[:size]) + bytes(size % 3 * 20))
            if not size:
                path.unlink()
        again = open_at(OsDisk(folder), boot=OTHER_BOOT, **SMALL)
        assert facts(again) == before
        again.close()


def test_a_sync_syncs_the_aborted_lists_too() -> None:
    """After power loss exactly the synced transactions are listed."""
    for seed in range(80):
        disk = FakeDisk(Random(seed))
        log = filled(disk)
        if seed % 2:
            log.abandon()
            disk.restart()
            log = open_at(disk, **SMALL)
        sync(log)
        write(log, 4, 2, b"4 third")
        marker = end(log, 4, False)
        append(log, b"after")
        disk.lose_power()
        again = open_at(disk, boot=OTHER_BOOT, **SMALL)
        found = [entry.producer_id for entry in again.aborted_between(0, again.end_offset)]
        assert found == ([1, 3, 4] if again.end_offset > marker else [1, 3])
        assert seen(again)[: len(EXPECTED)] == EXPECTED


def test_a_list_that_cannot_be_made_anew_for_want_of_space_keeps_the_log_shut(tmp_path: Path) -> None:
    log = filled(OsDisk(tmp_path))
    before = facts(log)
    log.abandon()
    for path in paths(tmp_path):
        path.unlink()
    with pytest.raises(StorageError, match="no space left"):
        open_at(FullDisk(OsDisk(tmp_path), 10), boot=OTHER_BOOT, **SMALL)
    assert facts(open_at(OsDisk(tmp_path), boot=OTHER_BOOT, **SMALL)) == before


# -- snapshots


def test_a_transaction_that_may_have_ended_in_what_is_gone_is_not_open_for_ever() -> None:
    """The segments with its marker were trimmed, and the snapshot that knew was lost with power."""
    disk = MemoryDisk()
    log = open_at(disk, **SMALL)
    write(log, 7, 0, b"x" * 600)
    append(log, b"y" * 600)
    old = {name: disk.load(f"{FOLDER}/{name}") for name in disk.names(FOLDER) if name.endswith(".producers")}
    end(log, 7, True)
    for _ in range(4):
        append(log, b"y" * 600)
    log.trim(5)
    for name in disk.names(FOLDER):
        if name.endswith(".producers"):
            disk.remove(f"{FOLDER}/{name}")
    for name, data in old.items():
        assert data is not None
        disk.store(f"{FOLDER}/{name}", data)
    again = open_at(disk, boot=OTHER_BOOT, **SMALL)
    assert again.producers.by_id[7].epoch == 0
    assert again.producers.open.first_offset is None
    assert again.last_stable_offset(again.end_offset) == again.end_offset


def test_an_open_transaction_outlives_the_segment_it_began_in(tmp_path: Path) -> None:
    log = open_at(OsDisk(tmp_path), **SMALL)
    write(log, 7, 0, b"x" * 600)
    for _ in range(4):
        append(log, b"y" * 600)
    log.trim(3)
    log.abandon()
    again = open_at(OsDisk(tmp_path), **SMALL)
    assert again.producers.is_in_transaction(7, 0)
    assert again.last_stable_offset(again.end_offset) == 3


# -- truncation


def test_truncation_opens_again_what_was_ended_behind_it() -> None:
    log = open_at(**SMALL)
    write(log, 7, 0, b"a")
    write(log, 8, 0, b"b")
    end(log, 7, False)
    marker = end(log, 8, False)
    log.truncate(marker, NOW_MS)
    assert log.producers.open.first_offset == 1
    assert [found.producer_id for found in log.aborted_between(0, log.end_offset)] == [7]
    end(log, 8, True)
    assert committed_values(log) == [b"b"]


def test_truncation_removes_open_transactions() -> None:
    log = open_at(**SMALL)
    append(log, b"a")
    write(log, 7, 0, b"b")
    log.truncate(1, NOW_MS)
    assert log.producers.open.first_offset is None
    assert log.last_stable_offset(1) == 1
    write(log, 7, 0, b"c")
    end(log, 7, True)
    assert committed_values(log) == [b"a", b"c"]


@pytest.mark.parametrize("offset", range(1, 19))
def test_a_truncated_log_is_as_if_it_had_never_been_longer(tmp_path: Path, offset: int) -> None:
    log = filled(OsDisk(tmp_path))
    log.truncate(offset, NOW_MS)
    shorter = open_at(**SMALL)
    whole = filled(MemoryDisk())
    for segment in whole.segments:
        for _, header, batch in segment.batches():
            if header.base_offset >= log.end_offset:
                continue
            data = bytearray(batch)
            if header.is_control:
                shorter.append_own(data, 0, NOW_MS)
            else:
                shorter.append(data, 0, NOW_MS, may_begin=True)
    assert shorter.end_offset == log.end_offset
    assert facts(log)[:3] == facts(shorter)[:3]
    assert facts(log)[5] == facts(shorter)[5]
    assert seen(log) == seen(shorter)
    before = facts(log)
    log.abandon()
    again = open_at(OsDisk(tmp_path), **SMALL)
    assert (facts(again)[:3], facts(again)[5]) == (before[:3], before[5])


def test_a_truncation_above_the_high_watermark_does_not_decide_what_is_not_committed() -> None:
    """The marker is not committed, and the snapshot that is gone back to was taken after it."""
    log = open_at(**SMALL)
    write(log, 7, 0, b"a")
    marker = end(log, 7, False)
    log.roll(NOW_MS)
    append(log, b"b")
    log.truncate(log.segments[-1].base_offset, NOW_MS)
    assert log.end_offset == marker + 1
    assert log.last_stable_offset(marker) == 0
    assert log.last_stable_offset(marker + 1) == marker + 1


@pytest.mark.parametrize("power", [False, True])
def test_a_truncation_that_is_interrupted_leaves_no_entry_without_its_marker(power: bool) -> None:
    for seed in range(40):
        disk = FakeDisk(Random(seed))
        log = filled(disk)
        sync(log)
        disk.die_after(1 + seed % 20)
        with suppress(Killed):
            log.truncate(9, NOW_MS)
        if power:
            disk.lose_power()
        else:
            disk.restart()
        again = open_at(disk, boot=OTHER_BOOT if power else "boot-1", **SMALL)
        found = [entry.last_offset for entry in again.aborted_between(0, again.end_offset)]
        assert found == [marker for marker in (7, 15) if marker < again.end_offset]
        assert seen(again) == EXPECTED[: len(seen(again))]

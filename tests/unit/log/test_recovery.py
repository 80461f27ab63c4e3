"""Recovery of a log of real files: after a kill, after power loss, after damage."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.foundation.errors import StorageError
from penstock.log.disk import OsDisk
from penstock.log.recovery import DamagedLog
from penstock.log.timestamp_lookup import find_time

from .builders import BOOT, ENDLESS, FOLDER, NOW_MS, append, batch, offsets_in, sync, values_in
from .descriptors import open_below
from .file_logs import OTHER_BOOT, RECORD_BYTES, contents, filled, killed, last_segment, recovered, write


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / FOLDER


# -- the orderly end, and the kill


def test_a_log_that_was_closed_is_opened_without_reading_it(disk: OsDisk) -> None:
    filled(disk).close()
    found = recovered(disk)
    assert (found.checked_bytes, found.cut_bytes) == (0, 0)
    assert offsets_in(found.log) == list(range(12))
    assert recovered(disk, OTHER_BOOT).checked_bytes == 0, "closing syncs"


def test_a_log_whose_process_was_killed_is_read_from_its_checkpoint_on(disk: OsDisk) -> None:
    log = filled(disk)
    log.save_checkpoint()
    for number in range(3):
        append(log, b"%0150d" % number)
    killed(log)
    found = recovered(disk)
    assert (found.checked_bytes, found.cut_bytes) == (3 * RECORD_BYTES, 0)
    assert found.log.end_offset == 15
    assert found.log.checkpoint.written_to == 15
    found.log.close()


def test_after_power_loss_a_log_is_read_from_its_last_sync_on(disk: OsDisk) -> None:
    log = filled(disk, 6)
    sync(log)
    for number in range(6):
        append(log, b"%0150d" % number)
    log.save_checkpoint()
    killed(log)
    found = recovered(disk, OTHER_BOOT)
    assert (found.checked_bytes, found.cut_bytes) == (6 * RECORD_BYTES, 0)
    assert offsets_in(found.log) == list(range(12))
    assert found.log.checkpoint.synced_to == 6


def test_a_recovered_range_is_trusted_at_the_next_kill(disk: OsDisk) -> None:
    killed(filled(disk))
    killed(recovered(disk, OTHER_BOOT).log)
    assert recovered(disk, OTHER_BOOT).checked_bytes == 0


def test_a_segment_that_was_made_and_never_written_to_is_no_damage(disk: OsDisk, folder: Path) -> None:
    log = filled(disk)
    log.roll(NOW_MS)
    killed(log)
    found = recovered(disk)
    assert offsets_in(found.log) == list(range(12))
    assert append(found.log).base_offset == 12


def test_an_empty_segment_that_power_loss_brings_back_is_no_damage(disk: OsDisk, folder: Path) -> None:
    """It was dropped at the start before, and then the log went on past it."""
    log = filled(disk, 6)
    sync(log)
    for number in range(6):
        append(log, b"%0150d" % number)
    killed(log)
    for offset in (6, 7, 11):
        (folder / f"{offset:020d}.log").touch()
    found = recovered(disk, OTHER_BOOT)
    assert offsets_in(found.log) == list(range(12))


def test_a_log_that_ends_in_a_hole_goes_on_after_it(disk: OsDisk, folder: Path) -> None:
    """Compaction may take the last batch of a closed segment: only the name of the next one tells where it ended."""
    log = filled(disk, 6)
    log.roll(NOW_MS)
    log.close()
    for path in sorted(folder.glob("*.log"))[-2:-1]:
        path.write_bytes(path.read_bytes()[:-RECORD_BYTES])
    with pytest.raises(DamagedLog):
        recovered(disk)
    again = recovered(disk, cleanup_policy="compact").log
    assert offsets_in(again) == [0, 1, 2, 3, 4]
    assert append(again, b"next").base_offset == 6


# -- torn and damaged tails


@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
def test_a_tail_that_is_torn_anywhere_is_cut_off(disk: OsDisk, folder: Path, boot: str) -> None:
    log = filled(disk, 9)
    sync(log)
    log.save_checkpoint()
    append(log, b"torn")
    killed(log)
    path = last_segment(folder)
    whole, mark = path.read_bytes(), (folder / "checkpoint").read_bytes()
    size = len(batch(b"torn"))
    for missing in range(1, size + 1):
        path.write_bytes(whole[: len(whole) - missing])
        (folder / "checkpoint").write_bytes(mark)
        found = recovered(disk, boot)
        assert found.log.end_offset == 9
        assert found.cut_bytes == size - missing
        assert path.stat().st_size == len(whole) - size
        assert append(found.log, b"next").base_offset == 9
        assert values_in(found.log)[-2:] == [b"%0150d" % 8, b"next"]
        killed(found.log)


def test_a_tail_with_a_flipped_byte_is_cut_off_before_it(disk: OsDisk, folder: Path) -> None:
    log = filled(disk, 9)
    log.save_checkpoint()
    for value in (b"good", b"spoilt", b"after it"):
        append(log, value)
    killed(log)
    path = last_segment(folder)
    whole, mark = path.read_bytes(), (folder / "checkpoint").read_bytes()
    begin = len(whole) - len(batch(b"spoilt")) - len(batch(b"after it"))
    for at in range(len(batch(b"spoilt"))):
        if 12 <= at < 16:
            continue  # the leader's epoch, which is set in place: no checksum covers it
        spoilt = bytearray(whole)
        spoilt[begin + at] ^= 0x40
        path.write_bytes(spoilt)
        (folder / "checkpoint").write_bytes(mark)
        found = recovered(disk)
        assert values_in(found.log)[-1] == b"good", f"byte {at}"
        assert found.log.end_offset == 10
        killed(found.log)


def test_pages_that_power_loss_left_empty_are_cut_off(disk: OsDisk, folder: Path) -> None:
    log = filled(disk, 5)
    sync(log)
    for number in range(3):
        append(log, b"%0150d" % number)
    killed(log)
    path = last_segment(folder)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 2 * RECORD_BYTES)
        file.truncate(size)
    found = recovered(disk, OTHER_BOOT)
    assert found.log.end_offset == 6
    assert found.cut_bytes == 2 * RECORD_BYTES


def test_whole_segments_after_a_torn_one_go_with_it(disk: OsDisk, folder: Path) -> None:
    log = filled(disk, 4)
    sync(log)
    for number in range(16):
        append(log, b"%0150d" % number)
    killed(log)
    paths = sorted(folder.glob("*.log"))
    torn = paths[2]
    torn.write_bytes(torn.read_bytes()[:-1])
    found = recovered(disk, OTHER_BOOT)
    assert sorted(folder.glob("*.log")) == paths[:3]
    assert offsets_in(found.log) == list(range(found.log.end_offset))
    assert found.log.end_offset == int(paths[3].stem) - 1
    assert append(found.log, b"next").base_offset == found.log.end_offset - 1


def test_a_segment_that_power_loss_took_ends_the_log(disk: OsDisk, folder: Path) -> None:
    log = filled(disk, 4)
    sync(log)
    for number in range(16):
        append(log, b"%0150d" % number)
    killed(log)
    paths = sorted(folder.glob("*.log"))
    paths[2].unlink()
    found = recovered(disk, OTHER_BOOT)
    assert found.log.end_offset == int(paths[2].stem)
    assert sorted(folder.glob("*.log"))[:2] == paths[:2]


# -- damage before the checkpoint: never repaired by forgetting

Damage = Callable[[list[Path]], object]
DAMAGES: dict[str, Damage] = {
    "the last segment is shorter": lambda paths: os.truncate(paths[-1], paths[-1].stat().st_size - 1),
    "the last segment ends early": lambda paths: os.truncate(paths[-1], RECORD_BYTES),
    "the last segment is empty": lambda paths: os.truncate(paths[-1], 0),
    "the last segment is missing": lambda paths: paths[-1].unlink(),
    "the last header is damaged": lambda paths: write(paths[-1], -RECORD_BYTES + 8, b"\0\0\0\0"),
    "the last batch claims more than there is": lambda paths: write(paths[-1], -RECORD_BYTES + 8, b"\0\0\x7f\0"),
    "a middle segment is shorter": lambda paths: os.truncate(paths[1], paths[1].stat().st_size - 1),
    "a middle segment is empty": lambda paths: os.truncate(paths[1], 0),
    "a middle segment is missing": lambda paths: paths[1].unlink(),
    "the first segment is missing": lambda paths: paths[0].unlink(),
    "the first segment is empty": lambda paths: os.truncate(paths[0], 0),
    "all segments are missing": lambda paths: [path.unlink() for path in paths],
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_before_the_checkpoint_takes_the_log_offline_and_nothing_away(
    disk: OsDisk, folder: Path, how: str
) -> None:
    log = filled(disk)
    log.close()
    DAMAGES[how](sorted(folder.glob("*.log")))
    before = contents(folder)
    for _ in range(2):
        with pytest.raises(StorageError):
            recovered(disk)
        assert {name: data for name, data in contents(folder).items() if data or name in before} == before


def test_every_way_to_tear_a_batch_that_the_checkpoint_vouches_for_is_damage(disk: OsDisk, folder: Path) -> None:
    filled(disk).close()
    path = last_segment(folder)
    whole = path.read_bytes()
    for missing in range(1, RECORD_BYTES + 1):
        path.write_bytes(whole[:-missing])
        with pytest.raises(DamagedLog, match="checkpoint covers"):
            recovered(disk)
        assert path.stat().st_size == len(whole) - missing


@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
def test_a_flipped_byte_before_the_checkpoint_is_left_to_its_readers(disk: OsDisk, folder: Path, boot: str) -> None:
    """It is not looked for at every start, and never cut off: readers have the checksum."""
    filled(disk).close()
    path = sorted(folder.glob("*.log"))[0]
    write(path, -1, b"?")
    before = contents(folder)
    found = recovered(disk, boot)
    assert (found.log.end_offset, found.cut_bytes) == (12, 0)
    assert contents(folder) == before


def test_damage_uses_up_no_descriptors(disk: OsDisk, folder: Path) -> None:
    filled(disk).close()
    last_segment(folder).unlink()
    before = open_below(folder)
    for _ in range(5):
        with pytest.raises(DamagedLog):
            recovered(disk)
    assert open_below(folder) == before


def test_a_log_without_a_checkpoint_is_checked_from_its_start(disk: OsDisk, folder: Path) -> None:
    filled(disk).close()
    (folder / "checkpoint").unlink()
    found = recovered(disk)
    assert found.checked_bytes == 12 * RECORD_BYTES
    assert offsets_in(found.log) == list(range(12))


# -- what else may lie about


@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
def test_an_index_that_is_gone_is_not_needed(disk: OsDisk, folder: Path, boot: str) -> None:
    filled(disk).close()
    for path in folder.glob("*.index"):
        path.unlink()
    log = recovered(disk, boot).log
    assert offsets_in(log) == list(range(12))
    assert find_time(log, NOW_MS + 7000, ENDLESS) == (NOW_MS + 7000, 7)


@pytest.mark.parametrize("garbage", [b"\0" * 64, b"\xff" * 64, bytes(range(256)), b"odd"])
def test_an_index_that_power_loss_spoilt_is_made_anew(disk: OsDisk, folder: Path, garbage: bytes) -> None:
    filled(disk).close()
    for path in folder.glob("*.index"):
        path.write_bytes(garbage)
    log = recovered(disk, OTHER_BOOT).log
    assert offsets_in(log) == list(range(12))
    for number in range(12):
        assert find_time(log, NOW_MS + 1000 * number, ENDLESS) == (NOW_MS + 1000 * number, number)


def test_an_index_is_made_anew_though_a_torn_batch_lies_behind_what_was_synced(disk: OsDisk, folder: Path) -> None:
    """Power loss may leave the length of its last batch and not its offset: it was taken for the first of all."""
    log = filled(disk, count=11)
    log.close()
    for path in folder.glob("*.index"):
        path.write_bytes(bytes(path.stat().st_size))
    torn = bytearray(batch(b"torn"))
    torn[:8] = bytes(8)
    write(last_segment(folder), 0, bytes(torn))
    assert offsets_in(recovered(disk, OTHER_BOOT).log) == list(range(11))


def test_temporary_files_are_removed(disk: OsDisk, folder: Path) -> None:
    filled(disk).close()
    before = sorted(path.name for path in folder.iterdir())
    for name in ("epochs.new", "00000000000000000000.log.cut", "00000000000000000000.log.cleaned", "swap.new"):
        (folder / name).write_bytes(b"half")
    log = recovered(disk).log
    assert sorted(path.name for path in folder.iterdir()) == before
    assert offsets_in(log) == list(range(12))


def test_files_of_others_are_let_be(disk: OsDisk, folder: Path) -> None:
    filled(disk).close()
    names = ["notes.txt", "copy of 00000000000000000000.log", "old.producers", "README.index"]
    for name in names:
        (folder / name).write_text("mine")
    log = recovered(disk).log
    assert offsets_in(log) == list(range(12))
    log.trim(10)
    log.close()
    assert all((folder / name).read_text() == "mine" for name in names)


def test_a_log_that_was_trimmed_to_nothing_goes_on_where_it_was(disk: OsDisk, folder: Path) -> None:
    log = filled(disk)
    log.trim(12)
    log.close()
    log = recovered(disk).log
    assert (log.start_offset, log.end_offset) == (12, 12)
    assert append(log, b"next").base_offset == 12

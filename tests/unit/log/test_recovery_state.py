"""Recovery of leader epochs and producer state."""

from pathlib import Path

import pytest

from penstock.log.disk import OsDisk
from penstock.log.epochs import LeaderEpochCache

from .builders import BOOT, FOLDER, NOW_MS, append, batch, sent, sync
from .file_logs import OTHER_BOOT, filled, killed, last_segment, recovered, write


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / FOLDER


@pytest.mark.parametrize("boot", [BOOT, OTHER_BOOT])
@pytest.mark.parametrize("older", [[(0, 0)], [(0, 0), (1, 5)], [(0, 0), (1, 7), (2, 10)], []])
def test_a_list_of_epochs_that_is_older_than_the_log_is_not_believed(
    disk: OsDisk, folder: Path, boot: str, older: list[tuple[int, int]]
) -> None:
    filled(disk).close()
    (folder / "epochs").write_bytes(LeaderEpochCache(older).dump())
    found = recovered(disk, boot).log.epochs
    assert found.at(11) == 2
    assert found.at(0) == 0
    if (1, 7) not in older:
        assert found.entries == [(0, 0), (1, 5), (2, 10)]


def test_epochs_are_not_read_from_what_power_loss_left_of_the_tail(disk: OsDisk, folder: Path) -> None:
    log = filled(disk, 12)
    sync(log)
    append(log, b"torn", epoch=7)
    killed(log)
    (folder / "epochs").write_bytes(b"")
    path = last_segment(folder)
    write(path, -len(batch(b"torn")), bytes(8))  # its offset is lost, its epoch is not
    found = recovered(disk, OTHER_BOOT)
    assert found.log.epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert found.log.end_offset == 12


def test_epochs_reach_back_to_batches_that_power_loss_brings_back(disk: OsDisk, folder: Path) -> None:
    """A trim is not synced: the list then begins where it was, and the batches before it are there again."""
    log = filled(disk, 1)
    sync(log)
    append(log, b"a", b"b", b"c", epoch=1)
    mark = (folder / "checkpoint").read_bytes()
    log.trim(2)
    log.save_checkpoint()
    killed(log)
    (folder / "checkpoint").write_bytes(mark)
    log = recovered(disk, OTHER_BOOT).log
    assert log.start_offset == 0
    assert [log.epochs.at(offset) for offset in range(4)] == [0, 1, 1, 1]


def test_opening_notes_epochs_that_only_the_batches_know(disk: OsDisk, folder: Path) -> None:
    log = filled(disk)
    killed(log)
    (folder / "epochs").write_bytes(b"[[0, 0]]")
    (folder / "checkpoint").unlink()
    assert recovered(disk).log.epochs.entries == [(0, 0), (1, 5), (2, 10)]


@pytest.mark.parametrize("damage", [b"", b"\0" * 30, b"[[0, 0], [1,"])
def test_epochs_that_power_loss_damaged_are_read_back_from_the_batches(
    disk: OsDisk, folder: Path, damage: bytes
) -> None:
    filled(disk).close()
    (folder / "epochs").write_bytes(damage)
    assert recovered(disk, OTHER_BOOT).log.epochs.entries == [(0, 0), (1, 5), (2, 10)]


def test_epochs_that_are_gone_are_read_back_from_the_batches(disk: OsDisk, folder: Path) -> None:
    filled(disk).close()
    (folder / "epochs").unlink()
    assert recovered(disk, OTHER_BOOT).log.epochs.entries == [(0, 0), (1, 5), (2, 10)]


def test_producers_are_remembered_with_and_without_their_snapshot(disk: OsDisk, folder: Path) -> None:
    log = filled(disk)
    for sequence in range(8):
        log.append(sent(7, sequence, b"%0150d" % sequence), 0, NOW_MS)
    killed(log)
    for damage in (lambda path: None, lambda path: path.write_bytes(b"PSP2 garbage"), Path.unlink):
        for path in folder.glob("*.producers"):
            damage(path)
        log = recovered(disk).log
        assert [known.first_sequence for known in log.producers.by_id[7].batches] == [3, 4, 5, 6, 7]
        assert log.append(sent(7, 5, b"%0150d" % 5), 0, NOW_MS).repeated
        killed(log)


def test_a_start_that_power_loss_left_behind_the_end_is_the_end(disk: OsDisk, folder: Path) -> None:
    """A truncation notes for good where the log starts, and what is there may not be synced yet."""
    log = filled(disk)
    log.trim(9)
    log.truncate(11, NOW_MS)
    killed(log)
    first, *others = sorted(folder.glob("*.log"))
    first.write_bytes(b"")
    for path in others:
        path.unlink()
    again = recovered(disk, OTHER_BOOT).log
    assert again.start_offset == again.end_offset == int(first.stem)
    append(again, b"next")
    assert again.read(again.start_offset, 999, again.end_offset)

"""The checkpoints of a log: written in turn, valid only if whole and of the same boot."""

from pathlib import Path

import pytest

from penstock.foundation.errors import StorageError
from penstock.log.checkpoint import FILE_BYTES, FILE_NAME, SLOT_BYTES, Checkpoint, CheckpointFile
from penstock.log.disk import Disk, OsDisk
from penstock.log.memory import MemoryDisk

from .builders import FullDisk

PATH = f"log/{FILE_NAME}"


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    disk = OsDisk(tmp_path) if request.param == "os" else MemoryDisk()
    disk.make_folder("log")
    return disk


def mark(number: int, boot_id: str = "a") -> Checkpoint:
    return Checkpoint(
        start_offset=number, written_to=10 * number, synced_to=5 * number, clean_to=number, boot_id=boot_id
    )


def loaded(disk: Disk, boot_id: str = "a") -> Checkpoint | None:
    return CheckpointFile(disk, "log").load(boot_id)


def spoil(disk: Disk, slot: int, at: int = 20) -> None:
    file = disk.open(PATH)
    file.write_at(slot * SLOT_BYTES + at, b"?")
    file.close()


def test_without_a_file_there_is_no_mark(disk: Disk) -> None:
    assert loaded(disk) is None


def test_the_newest_mark_is_the_one_that_counts(disk: Disk) -> None:
    file = CheckpointFile(disk, "log")
    for number in range(1, 8):
        file.save(mark(number))
        assert loaded(disk) == mark(number)


def test_turns_go_on_after_a_restart(disk: Disk) -> None:
    for number in range(1, 8):
        file = CheckpointFile(disk, "log")
        file.load("a")
        file.save(mark(number))
        assert loaded(disk) == mark(number)


def test_a_torn_write_leaves_the_mark_before_it(disk: Disk) -> None:
    file = CheckpointFile(disk, "log")
    for number in range(1, 5):
        file.save(mark(number))
    newest = 4 % 2
    for at in (0, 8, 9, 30, 100):
        spoil(disk, newest, at)
        assert loaded(disk) == mark(3)
    again = CheckpointFile(disk, "log")
    again.load("a")
    again.save(mark(9))
    assert loaded(disk) == mark(9)


def test_a_file_without_a_whole_mark_is_as_none(disk: Disk) -> None:
    file = CheckpointFile(disk, "log")
    for number in (1, 2):
        file.save(mark(number))
        file.save_synced(mark(number))
    for slot in range(4):
        spoil(disk, slot)
    assert loaded(disk) is None


@pytest.mark.parametrize("size", [0, 1, 300, 512, 1024, 2047])
def test_a_file_that_was_torn_when_it_was_made_is_completed(disk: Disk, size: int) -> None:
    disk.store(PATH, bytes(size))
    assert loaded(disk) is None
    CheckpointFile(disk, "log").save_synced(mark(1))
    assert loaded(disk, "b") == mark(1)
    assert len(disk.load(PATH) or b"") == FILE_BYTES


def test_after_a_restart_of_the_process_the_newest_mark_is_trusted_to_its_end(disk: Disk) -> None:
    file = CheckpointFile(disk, "log")
    file.save_synced(mark(1))
    file.save(mark(2))
    found = loaded(disk)
    assert found == mark(2)
    assert found is not None
    assert found.trusted_to("a") == 20


def test_after_a_restart_of_the_machine_only_the_synced_mark_is_trusted(disk: Disk) -> None:
    file = CheckpointFile(disk, "log")
    file.save_synced(mark(1))
    file.save(mark(2))
    found = loaded(disk, boot_id="b")
    assert found == mark(1)
    assert found is not None
    assert found.trusted_to("b") == 5


def test_after_a_restart_of_the_machine_without_a_synced_mark_there_is_none(disk: Disk) -> None:
    CheckpointFile(disk, "log").save(mark(2))
    assert loaded(disk, boot_id="b") is None


def test_the_two_kinds_of_mark_take_turns_of_their_own(disk: Disk) -> None:
    file = CheckpointFile(disk, "log")
    for number in range(1, 4):
        file.save_synced(mark(number))
    for number in range(10, 30):
        file.save(mark(number))
    assert loaded(disk) == mark(29)
    assert loaded(disk, "b") == mark(3)


def test_the_largest_mark_fits_into_its_slot(disk: Disk) -> None:
    largest = Checkpoint(
        start_offset=2**63 - 1,
        written_to=2**63 - 1,
        synced_to=2**63 - 1,
        clean_to=2**63 - 1,
        has_holes=True,
        boot_id="f" * 36,
    )
    file = CheckpointFile(disk, "log")
    file.save_synced(largest)
    file.save(largest)
    file.save(largest)
    assert loaded(disk, "f" * 36) == largest
    assert loaded(disk, "other") == largest
    assert len(disk.load(PATH) or b"") == FILE_BYTES


def test_a_full_disk_keeps_no_mark_from_being_written() -> None:
    disk = FullDisk(MemoryDisk())
    file = CheckpointFile(disk, "log")
    file.save(mark(1))
    disk.free_bytes = 0
    file.save(mark(2))
    file.save_synced(mark(3))
    assert loaded(disk) == mark(2)
    assert loaded(disk, "b") == mark(3)


def test_a_full_disk_refuses_a_new_file() -> None:
    with pytest.raises(StorageError):
        CheckpointFile(FullDisk(MemoryDisk(), 100), "log").save(mark(1))


def test_a_checkpoint_that_cannot_be_written_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk(tmp_path)
    disk.make_folder("log")
    file = CheckpointFile(disk, "log")
    file.save(mark(1))

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", fail)
        for _ in range(3):
            with pytest.raises(StorageError):
                file.save(mark(2))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before

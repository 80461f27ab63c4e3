"""A failed fsync: the kernel may drop what it could not write, and the next fsync succeeds without it."""

from random import Random

import pytest

from penstock.foundation.errors import StorageError
from penstock.log.checkpoint import FAILED_SYNC_FILE
from penstock.log.folder import LogFolder
from penstock.log.log import Log
from tests.simulation.disk import FakeDisk

from .builders import FOLDER, all_records, append, open_at

LARGE = b"." * 3000


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in all_records(log)]


def failed(disk: FakeDisk) -> Log:
    """A log with a synced batch, and others that an fsync has failed for."""
    log = open_at(disk)
    append(log, b"synced")
    log.sync()
    for _ in range(3):
        append(log, LARGE)
    log.save_checkpoint()  # vouches for all of it in this boot
    disk.fail_sync_after(1)
    with pytest.raises(StorageError):
        log.sync()
    return log


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_in_the_same_boot_trusts_only_what_was_synced(seed: int) -> None:
    disk = FakeDisk(Random(seed))
    failed(disk)
    disk.restart()
    log = open_at(disk)
    found = values(log)
    assert found[0] == b"synced"
    assert all(value == LARGE for value in found[1:])
    assert log.end_offset == len(found)
    append(log, b"next")
    assert values(log)[-1] == b"next"


@pytest.mark.parametrize("seed", range(20))
def test_the_recovered_log_is_on_the_device_once_it_is_open(seed: int) -> None:
    disk = FakeDisk(Random(seed))
    failed(disk)
    disk.restart()
    found = values(open_at(disk))
    assert FAILED_SYNC_FILE not in disk.names(FOLDER)
    disk.lose_power()
    assert values(open_at(disk, boot="another")) == found


def test_no_later_sync_vouches_for_what_was_dropped() -> None:
    log = failed(FakeDisk(Random(1)))
    with pytest.raises(StorageError, match="an fsync has failed; restart the broker"):
        log.sync()
    with pytest.raises(StorageError):
        log.close()
    assert log.checkpoint.synced_to == 1


def test_the_folder_knows_which_logs_have_failed() -> None:
    disk = FakeDisk(Random(1))
    LogFolder(disk).make([FOLDER, "logs/t/1"])
    failed(disk)
    assert LogFolder(disk).find_failed() == {FOLDER}
    disk.restart()
    open_at(disk)
    assert not LogFolder(disk).find_failed()


def test_where_a_log_begins_is_remembered_after_a_failed_sync() -> None:
    disk = FakeDisk(Random(1))
    log = open_at(disk)
    append(log, b"one")
    append(log, b"two")
    log.sync()
    log.trim(1)
    append(log, LARGE)
    disk.fail_sync_after(1)
    with pytest.raises(StorageError):
        log.sync()
    disk.restart()
    assert open_at(disk).start_offset == 1

"""The folders of logs, and which logs must exist."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.disk import Disk, OsDisk
from penstock.log.folder import LOGS, LogFolder
from penstock.log.memory import MemoryDisk
from penstock.log.recovery import open_log
from tests.simulation.disk import FakeDisk, Killed

from .builders import BOOT, NOW_MS, FullDisk, settings

ORDERS = LogFolder.path(TopicPartition("orders", 0), b"\1" * 16)
ORDERS_1 = LogFolder.path(TopicPartition("orders", 1), b"\1" * 16)
OTHERS = LogFolder.path(TopicPartition("others", 0), b"\2" * 16)


@pytest.fixture
def disk(tmp_path: Path) -> OsDisk:
    return OsDisk(tmp_path)


def open_in(disk: Disk, path: str) -> None:
    open_log(disk, path, settings(), boot_id=BOOT, now_ms=NOW_MS).log.close()


def test_a_path_tells_people_the_topic_and_machines_its_id() -> None:
    assert ORDERS == "logs/orders/0.AQEBAQEBAQEBAQEBAQEBAQ"
    assert LogFolder.path(TopicPartition("orders", 0), b"\2" * 16) != ORDERS, "a topic that is made again is another"


def test_a_log_that_was_never_made_is_not_lost(disk: OsDisk) -> None:
    folder = LogFolder(disk)
    assert not folder.is_lost(ORDERS)
    folder.make([ORDERS])
    assert not folder.is_lost(OTHERS)


def test_a_log_that_was_made_and_is_gone_is_lost(disk: OsDisk) -> None:
    folder = LogFolder(disk)
    folder.make([ORDERS, OTHERS])
    for path in (ORDERS, OTHERS):
        open_in(disk, path)
    disk.remove(ORDERS)
    for each in (folder, LogFolder(disk)):
        assert each.is_lost(ORDERS)
        assert not each.is_lost(OTHERS)


def test_a_log_whose_folder_was_emptied_is_lost(disk: OsDisk) -> None:
    LogFolder(disk).make([ORDERS])
    open_in(disk, ORDERS)
    for name in disk.names(ORDERS):
        disk.remove(f"{ORDERS}/{name}")
    assert LogFolder(disk).is_lost(ORDERS)


def test_a_log_is_not_lost_because_its_process_ended_before_it_was_opened(disk: OsDisk) -> None:
    LogFolder(disk).make([ORDERS])
    again = LogFolder(disk)
    assert not again.is_lost(ORDERS)
    open_in(disk, ORDERS)
    assert not again.is_lost(ORDERS)


@pytest.mark.parametrize("seed", range(40))
def test_a_new_log_is_not_lost_with_the_power(seed: int) -> None:
    disk = FakeDisk(Random(seed))
    disk.die_after(Random(seed).randint(1, 15))
    with suppress(Killed):
        LogFolder(disk).make([ORDERS, ORDERS_1])
        open_in(disk, ORDERS)
    disk.disarm()
    disk.lose_power()
    folder = LogFolder(disk)
    assert not folder.is_lost(ORDERS)
    assert not folder.is_lost(ORDERS_1)


def test_making_a_log_again_leaves_it_as_it_is(disk: OsDisk) -> None:
    folder = LogFolder(disk)
    folder.make([ORDERS])
    open_in(disk, ORDERS)
    before = {name: disk.load(f"{ORDERS}/{name}") for name in disk.names(ORDERS)}
    folder.make([ORDERS])
    disk.remove("replicas")
    LogFolder(disk).make([ORDERS])
    assert {name: disk.load(f"{ORDERS}/{name}") for name in disk.names(ORDERS)} == before


def test_a_log_that_is_removed_is_gone_and_not_lost(disk: OsDisk) -> None:
    folder = LogFolder(disk)
    folder.make([ORDERS, ORDERS_1, OTHERS])
    folder.remove([ORDERS])
    assert disk.names("logs/orders") == [ORDERS_1.rpartition("/")[2]]
    for each in (folder, LogFolder(disk)):
        assert not each.is_lost(ORDERS)
    folder.remove([ORDERS_1])
    assert disk.names(LOGS) == ["others"], "the folder of a topic goes with its last log"


@pytest.mark.parametrize("seed", range(40))
def test_leftovers_of_a_removed_log_are_recognised_after_power_loss(seed: int) -> None:
    disk = FakeDisk(Random(seed))
    folder = LogFolder(disk)
    folder.make([ORDERS, OTHERS])
    for path in (ORDERS, OTHERS):
        open_in(disk, path)
    disk.sync_folder(LOGS)
    whole = disk.names(ORDERS)
    disk.die_after(Random(seed).randint(1, 15))
    with suppress(Killed):
        folder.remove([ORDERS])
    disk.lose_power()
    again = LogFolder(disk)
    assert not again.is_leftover(OTHERS)
    found = disk.names(ORDERS)
    assert again.is_leftover(ORDERS) if found and found != whole else not again.is_lost(ORDERS)


def test_unknown_logs_are_strays(disk: OsDisk) -> None:
    folder = LogFolder(disk)
    folder.make([ORDERS, ORDERS_1, OTHERS])
    disk.remove(ORDERS_1)
    assert folder.strays([OTHERS]) == [ORDERS, ORDERS_1]
    assert folder.strays([ORDERS, ORDERS_1, OTHERS]) == []
    folder.remove(folder.strays([OTHERS]))
    assert disk.names(LOGS) == ["others"]
    assert LogFolder(disk).strays([OTHERS]) == []


def test_a_file_among_the_topics_is_no_stray(disk: OsDisk) -> None:
    folder = LogFolder(disk)
    folder.make([ORDERS])
    disk.store("logs/.DS_Store", b"?")
    assert folder.strays([ORDERS]) == []


def test_a_full_disk_makes_no_log_and_forgets_none() -> None:
    disk = FullDisk(MemoryDisk())
    folder = LogFolder(disk)
    folder.make([ORDERS])
    disk.free_bytes = 0
    with pytest.raises(StorageError):
        folder.make([OTHERS])
    disk.free_bytes = 1 << 20
    assert not folder.is_made(OTHERS)
    assert folder.is_made(ORDERS)
    folder.make([OTHERS])
    assert LogFolder(disk).is_made(OTHERS)


def test_logs_are_removed_from_a_full_disk() -> None:
    class Freeing(FullDisk):
        def remove(self, path: str) -> None:
            self._disk.remove(path)
            self.free_bytes = 1 << 20

    disk = Freeing(MemoryDisk())
    folder = LogFolder(disk)
    folder.make([ORDERS, OTHERS])
    disk.free_bytes = 0
    folder.remove([ORDERS])
    assert disk.names(ORDERS) == []
    assert not LogFolder(disk).is_made(ORDERS)
    assert LogFolder(disk).is_made(OTHERS)


@pytest.mark.parametrize("operation", range(1, 12))
def test_leftovers_of_a_log_are_recognised_though_a_full_disk_could_not_note_its_removal(operation: int) -> None:
    """A disk removes the files of a folder one by one if it is too full even for a rename; then the process dies."""
    disk = FakeDisk(Random(operation))
    full = FullDisk(disk)
    folder = LogFolder(full)
    folder.make([ORDERS, OTHERS])
    for path in (ORDERS, OTHERS):
        open_in(disk, path)
    full.free_bytes = 0
    whole = disk.names(ORDERS)
    disk.die_after(operation)
    with suppress(Killed, StorageError):
        folder.remove([ORDERS])
    disk.restart()
    again = LogFolder(disk)
    found = disk.names(ORDERS)
    assert again.is_made(ORDERS)
    assert not again.is_leftover(OTHERS)
    assert found == whole or again.is_leftover(ORDERS) or again.is_lost(ORDERS)
    assert found or again.is_lost(ORDERS)

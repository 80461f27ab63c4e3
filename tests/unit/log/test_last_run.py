"""Detects whether the machine has stopped under the last process of a data folder."""

from pathlib import Path
from typing import cast

import pytest

from penstock.log.disk import Disk, OsDisk
from penstock.log.last_run import LastRun

from .builders import FullDisk


def test_a_folder_that_is_new_has_lost_nothing(tmp_path: Path) -> None:
    assert not LastRun(OsDisk(tmp_path), "boot-1").lost_power


@pytest.mark.parametrize(
    ("ends", "boot_id", "lost_power"),
    [
        pytest.param(False, "boot-1", False, id="the process was killed"),
        pytest.param(False, "boot-2", True, id="the machine stopped"),
        pytest.param(True, "boot-2", False, id="the machine stopped after the process"),
        pytest.param(True, "boot-1", False, id="it was stopped and started"),
    ],
)
def test_a_machine_that_stops_under_a_process_is_noticed(
    tmp_path: Path, ends: bool, boot_id: str, lost_power: bool
) -> None:
    before = LastRun(OsDisk(tmp_path), "boot-1")
    if ends:
        before.end()
    after = LastRun(OsDisk(tmp_path), boot_id)
    assert after.lost_power is lost_power
    after.mark_loss_reported()
    assert not LastRun(OsDisk(tmp_path), boot_id).lost_power, "the cluster knows, and it is over"


@pytest.mark.parametrize("ends", [pytest.param(False, id="killed"), pytest.param(True, id="stopped")])
@pytest.mark.parametrize("boot_id", ["boot-2", "boot-3"])
def test_lost_power_is_not_forgotten_before_it_was_reported_to_the_cluster(
    tmp_path: Path, ends: bool, boot_id: str
) -> None:
    LastRun(OsDisk(tmp_path), "boot-1")
    for _ in range(2):  # such as when the store cannot be reached, and the broker is started again
        before = LastRun(OsDisk(tmp_path), "boot-2")
        assert before.lost_power
        if ends:
            before.end()
    after = LastRun(OsDisk(tmp_path), boot_id)
    assert after.lost_power
    after.mark_loss_reported()
    after.end()
    assert not LastRun(OsDisk(tmp_path), "boot-4").lost_power


def test_files_of_the_version_before_are_read(tmp_path: Path) -> None:
    (tmp_path / "last-run").write_bytes(b'{"boot_id": "boot-1", "ended": false}'.ljust(256))
    assert LastRun(OsDisk(tmp_path), "boot-2").lost_power
    (tmp_path / "last-run").write_bytes(b'{"boot_id": "boot-1", "ended": false}'.ljust(256))
    assert not LastRun(OsDisk(tmp_path), "boot-1").lost_power


def test_a_full_disk_does_not_matter(tmp_path: Path) -> None:
    LastRun(OsDisk(tmp_path), "boot-1").end()
    disk = FullDisk(OsDisk(tmp_path), free_bytes=0)
    assert not LastRun(cast(Disk, disk), "boot-2").lost_power
    assert LastRun(cast(Disk, disk), "boot-3").lost_power


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"boot_id": "boot-1"}'])
def test_an_unreadable_file_counts_as_lost_power(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "last-run").write_bytes(content)
    assert LastRun(OsDisk(tmp_path), "boot-1").lost_power

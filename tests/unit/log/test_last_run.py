"""Whether a machine has stopped under the process that had a data folder before."""

from pathlib import Path

import pytest

from penstock.log.disk import OsDisk
from penstock.log.last_run import LastRun


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
    assert not LastRun(OsDisk(tmp_path), boot_id).lost_power, "it was looked at, and is over"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"boot_id": "boot-1"}'])
def test_what_cannot_be_read_says_nothing_good(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "last-run").write_bytes(content)
    assert LastRun(OsDisk(tmp_path), "boot-1").lost_power

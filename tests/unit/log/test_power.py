"""The tests' own power loss removes all unsynced data, and leaves what recovery accepts."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from penstock.foundation.ids import TopicPartition
from penstock.log.disk import OsDisk
from penstock.log.folder import LogFolder
from penstock.log.last_run import LastRun
from penstock.log.recovery import open_log
from tests.power_loss import BEFORE, lose_power
from tests.simulation.disk import FakeDisk, Killed

from .builders import BOOT, NOW_MS, append, batch, open_at, settings, sync, values_in

ORDERS = LogFolder.path(TopicPartition("orders", 0), b"\1" * 16)


def test_only_synced_data_survives(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    LastRun(disk, BOOT)
    LogFolder(disk).make([ORDERS])
    log = open_log(disk, ORDERS, settings(), boot_id=BOOT, now_ms=NOW_MS).log
    log.append(batch(b"synced"), 0, NOW_MS)
    log.sync()
    log.append(batch(b"not"), 0, NOW_MS)
    log.save_checkpoint()
    log.abandon()
    assert lose_power(tmp_path) > 0
    assert LastRun(disk, BOOT).lost_power
    again = open_log(disk, ORDERS, settings(), boot_id=BOOT, now_ms=NOW_MS).log
    assert values_in(again) == [b"synced"]
    assert again.checkpoint.boot_id == BOOT != BEFORE
    again.close()


@pytest.mark.parametrize("seed", range(6))
def test_truncated_data_stays_gone_after_a_kill_and_power_loss(seed: int) -> None:
    """A cut that was not synced before the process was killed is not undone by power loss, once others took over."""
    for die_after in range(1, 40):
        disk = FakeDisk(Random(seed))
        log = open_at(disk)
        for value in (b"kept", b"old-1", b"old-2"):
            append(log, value, epoch=1)
        sync(log)
        disk.die_after(die_after)
        with suppress(Killed):
            log.truncate(1, NOW_MS)
        disk.restart()
        again = open_at(disk)
        if again.end_offset == 1:
            append(again, b"new-1", epoch=2)
            append(again, b"new-2", epoch=2)
        expected = values_in(again)
        disk.lose_power()
        found = values_in(open_at(disk, boot="after power loss"))
        assert found == expected[: len(found)], f"killed in operation {die_after}"

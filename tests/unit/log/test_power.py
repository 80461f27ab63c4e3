"""The tests' own power loss takes all that was not synced, and leaves what recovery accepts."""

from pathlib import Path

from penstock.foundation.ids import TopicPartition
from penstock.log.disk import OsDisk
from penstock.log.folder import LogFolder
from penstock.log.last_run import LastRun
from penstock.log.recovery import open_log
from tests.power import BEFORE, lose_power

from .making import BOOT, NOW_MS, batch, settings, values_in

ORDERS = LogFolder.path(TopicPartition("orders", 0), b"\1" * 16)


def test_what_was_synced_is_there_and_nothing_else(tmp_path: Path) -> None:
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

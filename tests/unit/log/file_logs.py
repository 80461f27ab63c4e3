"""Logs of real files, to be closed, killed, damaged and reopened."""

import os
from pathlib import Path

from penstock.log.disk import OsDisk
from penstock.log.log import Log
from penstock.log.recovery import Recovered, open_log

from .builders import BOOT, FOLDER, NOW_MS, append, batch, open_at, settings

OTHER_BOOT = "boot-2"
SETTINGS = {"segment_bytes": 1024, "index_interval_bytes": 100, "message_timestamp_after_max_ms": 2**63 - 1}
RECORD_BYTES = len(batch(b"%0150d" % 0))


def filled(disk: OsDisk, count: int = 12) -> Log:
    """About four batches of one record to a segment; nothing but the last segment is new to the checkpoint."""
    log = open_at(disk, **SETTINGS)
    for number in range(count):
        append(log, b"%0150d" % number, timestamp_ms=NOW_MS + 1000 * number, epoch=number // 5)
    return log


def killed(log: Log) -> None:
    """The process ends: descriptors are closed and nothing else happens."""
    log.abandon()


def recovered(disk: OsDisk, boot: str = BOOT, **values: object) -> Recovered:
    return open_log(disk, FOLDER, settings(**{**SETTINGS, **values}), boot_id=boot, now_ms=NOW_MS)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}


def last_segment(folder: Path) -> Path:
    return sorted(folder.glob("*.log"))[-1]


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at, os.SEEK_END)
        file.write(data)

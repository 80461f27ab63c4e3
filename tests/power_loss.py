"""Simulates a power loss: leaves only the synced part of a broker's data folder."""

import json
import os
from dataclasses import replace
from pathlib import Path

from penstock.log.checkpoint import FILE_BYTES, FILE_NAME, CheckpointFile
from penstock.log.disk import OsDisk
from penstock.records.batch import batches

BEFORE = "the boot before"


def lose_power(data_dir: Path) -> int:
    """Take away what the process, which is dead, had not synced; how many bytes of logs that were."""
    lost = sum(_lose_tail(data_dir, folder) for folder in sorted((data_dir / "logs").glob("*/*")))
    noted = data_dir / "last-run"
    note = json.loads(noted.read_text())
    noted.write_text(json.dumps({**note, "boot_id": BEFORE}).ljust(noted.stat().st_size))
    return lost


def _lose_tail(data_dir: Path, folder: Path) -> int:
    where = str(folder.relative_to(data_dir))
    disk = OsDisk(data_dir)
    mark = CheckpointFile(disk, where).load("")  # of no boot that ever was: only what is synced
    synced_to = mark.synced_to if mark is not None else 0
    lost = 0
    for path in folder.glob("*.log"):
        data = path.read_bytes()
        ends = [at + header.size_bytes for at, header in batches(data) if header.next_offset <= synced_to]
        kept = max(ends, default=0)
        lost += len(data) - kept
        os.truncate(path, kept)
    for path in folder.glob("*.index"):
        os.truncate(path, 0)
    for size in (0, FILE_BYTES):
        os.truncate(folder / FILE_NAME, size)
    if mark is not None:
        CheckpointFile(disk, where).save_synced(replace(mark, boot_id=BEFORE))
    return lost

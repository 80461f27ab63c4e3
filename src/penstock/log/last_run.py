"""Detects an unclean shutdown: how the previous process ended, and whether the machine lost power since.

A killed process loses nothing that it wrote. A machine that stopped unexpectedly may have lost everything that was
not fsynced, so logs with flush=os may lack acknowledged records. Every later process sees the power loss, until one
has reported it to the cluster, by leaving the ISRs of the affected partitions.
"""

import json
from contextlib import closing
from typing import Final, NamedTuple

from penstock.log.disk import Disk

_FILE: Final = "last-run"
_BYTES: Final = 256


class _Note(NamedTuple):
    boot_id: str
    ended: bool
    is_loss_unreported: bool
    """Whether there was a power loss, in this boot or earlier, that was not reported to the cluster yet."""


class LastRun:
    """A file that records the start and the clean shutdown of a broker process."""

    def __init__(self, disk: Disk, boot_id: str) -> None:
        self._disk = disk
        self._boot_id = boot_id
        before = _read(disk.load(_FILE))
        stopped = before is not None and not before.ended and before.boot_id != boot_id
        self.lost_power: Final = stopped or (before is not None and before.is_loss_unreported)
        """Whether the machine lost power during an earlier process: records at the ends of logs may be lost."""
        self._is_loss_unreported = self.lost_power
        self._note(ended=False)

    def mark_loss_reported(self) -> None:
        """Records that the power loss was reported: this broker has left the ISRs of partitions whose logs may lack
        records, so later processes need not leave them again."""
        if self._is_loss_unreported:
            self._is_loss_unreported = False
            self._note(ended=False)

    def end(self) -> None:
        """Records a clean shutdown: all logs are fsynced and closed."""
        self._note(ended=True)

    def _note(self, *, ended: bool) -> None:
        """Writes that this process is running or, if `ended`, was shut down cleanly. Overwrites the file in place,
        which works on a full disk; `_read` takes a torn write for a power loss."""
        note = {"boot_id": self._boot_id, "ended": ended, "doubtful": self._is_loss_unreported}
        with closing(self._disk.open(_FILE)) as file:
            is_new = file.size < _BYTES
            if is_new:
                file.append(bytes(_BYTES - file.size))
            file.write_at(0, json.dumps(note).encode().ljust(_BYTES, b" "))
            file.sync()
        if is_new:
            self._disk.sync_folder("")


def _read(data: bytes | None) -> _Note | None:
    """Parses the content of the last-run file. Returns None if the content is missing or empty: no process has run
    on this data folder. Takes unreadable content for a power loss that was not reported to the cluster yet."""
    if not data or not data.strip(b"\0"):
        return None  # no process has run here, or it only created the file
    try:
        value = json.loads(data)
        return _Note(str(value["boot_id"]), bool(value["ended"]), bool(value.get("doubtful", False)))
    except (ValueError, KeyError, TypeError):
        return _Note("", ended=False, is_loss_unreported=True)

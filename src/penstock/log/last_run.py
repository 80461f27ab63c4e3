"""Detects an unclean shutdown: how the previous process ended, and whether the machine lost power since.

A killed process loses nothing that it wrote. A machine that stopped unexpectedly may have lost everything that was
not fsynced, so logs with flush=os may lack acknowledged records. This remains true for every later process until one
of them has reported it to the cluster.
"""

import json
from typing import Final, NamedTuple

from penstock.log.disk import Disk

_FILE: Final = "last-run"
_BYTES: Final = 256


class _Note(NamedTuple):
    boot_id: str
    ended: bool
    is_loss_unreported: bool
    """Whether power was lost, in this boot or earlier, and the cluster may not know yet."""


class LastRun:
    """A file that is written when a process starts and when it shuts down cleanly."""

    def __init__(self, disk: Disk, boot_id: str) -> None:
        self._disk = disk
        self._boot_id = boot_id
        before = _read(disk.load(_FILE))
        stopped = before is not None and not before.ended and before.boot_id != boot_id
        self.lost_power: Final = stopped or (before is not None and before.is_loss_unreported)
        """Whether the machine has lost power under an earlier process: the tails of logs may be gone."""
        self._is_loss_unreported = self.lost_power
        self._note(ended=False)

    def mark_loss_reported(self) -> None:
        """Records that the cluster does not rely any more on the records that may be lost."""
        if self._is_loss_unreported:
            self._is_loss_unreported = False
            self._note(ended=False)

    def end(self) -> None:
        """Records a clean shutdown: all logs are fsynced and closed."""
        self._note(ended=True)

    def _note(self, *, ended: bool) -> None:
        """Overwrites the file in place, so that it works on a full disk. A torn write counts as power loss."""
        note = {"boot_id": self._boot_id, "ended": ended, "doubtful": self._is_loss_unreported}
        file = self._disk.open(_FILE)
        is_new = file.size < _BYTES
        if is_new:
            file.append(bytes(_BYTES - file.size))
        file.write_at(0, json.dumps(note).encode().ljust(_BYTES, b" "))
        file.sync()
        file.close()
        if is_new:
            self._disk.sync_folder("")


def _read(data: bytes | None) -> _Note | None:
    """Returns None if no process has run here. An unreadable file counts as unreported power loss."""
    if not data or not data.strip(b"\0"):
        return None  # no process has run here, or it only created the file
    try:
        value = json.loads(data)
        return _Note(str(value["boot_id"]), bool(value["ended"]), bool(value.get("doubtful", False)))
    except (ValueError, KeyError, TypeError):
        return _Note("", ended=False, is_loss_unreported=True)

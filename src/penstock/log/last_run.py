"""How the process that had a data folder before this one ended, and whether its machine has stopped since.

A killed process loses nothing that it wrote. A machine that stopped without being told to may have lost whatever
was not synced: a log that is not synced before it acknowledges may lack what others were told is safe. That stays so
for every process that comes after, until one of them has told the cluster.
"""

import json
from typing import Final, NamedTuple

from penstock.log.disk import Disk

_FILE: Final = "last-run"
_BYTES: Final = 256


class _Note(NamedTuple):
    boot_id: str
    ended: bool
    is_doubtful: bool
    """Whether power was lost, in this boot or before it, and the cluster may not know yet."""


class LastRun:
    """Noted when a process begins and when it ends in good order."""

    def __init__(self, disk: Disk, boot_id: str) -> None:
        self._disk = disk
        self._boot_id = boot_id
        before = _read(disk.load(_FILE))
        stopped = before is not None and not before.ended and before.boot_id != boot_id
        self.lost_power: Final = stopped or (before is not None and before.is_doubtful)
        """Whether the machine has stopped under a process before: the tails of logs may be gone."""
        self._is_doubtful = self.lost_power
        self._note(ended=False)

    def told(self) -> None:
        """Nobody counts on what may be gone any more."""
        if self._is_doubtful:
            self._is_doubtful = False
            self._note(ended=False)

    def end(self) -> None:
        """All logs are synced and closed."""
        self._note(ended=True)

    def _note(self, *, ended: bool) -> None:
        """Written over in place, so that a full disk does not matter. What is torn says nothing good."""
        note = {"boot_id": self._boot_id, "ended": ended, "doubtful": self._is_doubtful}
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
    """What cannot be read says that nothing is known to be well."""
    if not data or not data.strip(b"\0"):
        return None  # nobody was here, or got no further than to make it
    try:
        value = json.loads(data)
        return _Note(str(value["boot_id"]), bool(value["ended"]), bool(value.get("doubtful", False)))
    except (ValueError, KeyError, TypeError):
        return _Note("", ended=False, is_doubtful=True)

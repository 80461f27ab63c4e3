"""How the process that had a data folder before this one ended, and whether its machine has stopped since.

A killed process loses nothing that it wrote. A machine that stopped without being told to may have lost whatever
was not synced: a log that is not synced before it acknowledges may lack what others were told is safe.
"""

import json
from typing import Final

from penstock.log.disk import Disk

_FILE: Final = "last-run"
_BYTES: Final = 256


class LastRun:
    """Noted when a process begins and when it ends in good order."""

    def __init__(self, disk: Disk, boot_id: str) -> None:
        self._disk = disk
        self._boot_id = boot_id
        before = _read(disk.load(_FILE))
        self.lost_power: Final = before is not None and not before[1] and before[0] != boot_id
        """Whether the machine has stopped under the process before: the tails of logs may be gone."""
        self._note(ended=False)

    def end(self) -> None:
        """All logs are synced and closed."""
        self._note(ended=True)

    def _note(self, *, ended: bool) -> None:
        """Written over in place, so that a full disk does not matter. What is torn says nothing good."""
        text = json.dumps({"boot_id": self._boot_id, "ended": ended}).encode()
        file = self._disk.open(_FILE)
        if file.size < _BYTES:
            file.append(bytes(_BYTES - file.size))
        file.write_at(0, text.ljust(_BYTES, b" "))
        file.sync()
        file.close()


def _read(data: bytes | None) -> tuple[str, bool] | None:
    """Boot id, and whether it ended well. What cannot be read says that nothing is known to be well."""
    if not data or not data.strip(b"\0"):
        return None  # nobody was here, or got no further than to make it
    try:
        value = json.loads(data)
        return str(value["boot_id"]), bool(value["ended"])
    except (ValueError, KeyError, TypeError):
        return "", False

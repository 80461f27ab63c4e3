"""A folder that belongs to this user alone, for files that later runs find again: scripts that are executed, locks.

A fixed name in a folder that all users share, as `/tmp` is, can be taken by somebody else beforehand: what is then
executed or written there is theirs to choose.
"""

import atexit
import os
import shutil
import stat
import tempfile
from pathlib import Path

_MODE = 0o700


def private_folder(name: str) -> Path:
    """Returns a folder that only this user can write to, made if it is missing.

    It lies in the user's cache (`$XDG_CACHE_HOME/penstock`, or `~/.cache/penstock`) and is the same each time. Where
    that cannot be used, or is somebody else's, it is a new temporary folder, which goes with the process.
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache.mkdir(parents=True, exist_ok=True)
        if _is_made_private(cache / "penstock") and _is_made_private(cache / "penstock" / name):
            return cache / "penstock" / name
    except (OSError, RuntimeError):  # no home, or one that cannot be written
        pass
    made = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _is_made_private(folder: Path) -> bool:
    """Makes the folder; False if there is one that is a link, somebody else's, or open to others."""
    try:
        folder.mkdir(mode=_MODE)
    except FileExistsError:
        found = folder.lstat()
        is_writable_by_others = bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not is_writable_by_others
    return True

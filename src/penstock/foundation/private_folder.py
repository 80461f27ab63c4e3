"""A folder that belongs to this user alone, for files that later runs reuse: executed scripts, locks.

In a shared folder such as `/tmp`, another user could create a file of the same name first, and so choose the script
that is executed or the file that is written.
"""

import atexit
import os
import shutil
import stat
import tempfile
from pathlib import Path

_MODE = 0o700


def private_folder(name: str) -> Path:
    """Returns a folder that only this user can write to; creates it if it is missing.

    The folder is in the user's cache (`$XDG_CACHE_HOME/penstock` or `~/.cache/penstock`), the same in every run. If
    that folder is unusable or belongs to another user, returns a new temporary folder, removed when the process ends.
    """
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache.mkdir(parents=True, exist_ok=True)
        if _make_private(cache / "penstock") and _make_private(cache / "penstock" / name):
            return cache / "penstock" / name
    except (OSError, RuntimeError):  # no home folder, or it is not writable
        pass
    made = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _make_private(folder: Path) -> bool:
    """Creates the folder; returns False if it is a link, belongs to another user, or is writable by others."""
    try:
        folder.mkdir(mode=_MODE)
    except FileExistsError:
        found = folder.lstat()
        is_writable_by_others = bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not is_writable_by_others
    return True

"""Identity file and lock of a data folder: its broker, its cluster and its format version."""

import errno
import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from penstock.foundation.errors import PenstockError, StorageError
from penstock.foundation.ids import uuid_text
from penstock.log.disk import Disk

FORMAT_VERSION: Final = 1
"""Format version of the data folder; incremented when a release writes data that older releases would misread."""
_FILE: Final = "identity"


class WrongBroker(PenstockError):
    """The data folder belongs to another broker."""


class NewerDataFolder(PenstockError):
    """The data folder has a newer format version than this release supports."""


class DataFolderInUse(PenstockError):
    """Another process uses this data folder."""


class DataFolderUnusable(PenstockError):
    """The data folder cannot be created or written, or is a file."""


def lock_folder(folder: Path) -> int:
    """Creates the folder if it is missing and locks it; returns the file descriptor that holds the lock.

    The kernel releases the lock when the process ends or the descriptor is closed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock_fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DataFolderUnusable(_why_unusable(folder, error)) from error
    try:
        os.lockf(lock_fd, os.F_TLOCK, 0)
    except OSError:
        os.close(lock_fd)
        raise DataFolderInUse(
            f"{folder} is used by another penstock process; stop it, or give another --data-dir"
        ) from None
    return lock_fd


def _why_unusable(folder: Path, error: OSError) -> str:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        file = next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), folder)
        return (
            f"the data folder {folder} cannot be created: {file} is a file, expected a folder; "
            "give another --data-dir"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"the data folder {folder} cannot be written ({reason}); expected a folder that user id {os.geteuid()} "
            "may write to: change its owner or mode, or give another --data-dir"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no disk space for the data folder {folder} ({reason}); free some, or give another --data-dir"
    return f"the data folder {folder} cannot be used: {reason}; expected a writable folder; give another --data-dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderIdentity:
    """Folder id, node id and cluster id of a data folder; no cluster id ("") before the broker joins a cluster."""

    folder: str
    node_id: int
    cluster_id: str = ""
    version: int = FORMAT_VERSION

    @classmethod
    def of(cls, disk: Disk, node_id: int) -> "FolderIdentity":
        """Reads the identity file. A folder without the file is new: it gets an identity, which `save` writes later.

        A file without a format version counts as version 1. Raises StorageError, WrongBroker, NewerDataFolder.
        """
        data = disk.load(_FILE)
        if data is None:
            return cls(folder=uuid_text(secrets.token_bytes(16)), node_id=node_id)
        try:
            values = json.loads(data)
            _check_version(values.get("version", 1))
            found = cls(**values)
        except (ValueError, TypeError, AttributeError) as error:
            raise StorageError(f"{_FILE} in the data folder is damaged: {error}; restore it") from error
        if found.node_id != node_id:
            raise WrongBroker(
                f"the data folder belongs to broker {found.node_id}; start it with --node-id {found.node_id}, "
                "or give another --data-dir"
            )
        if "version" not in values:
            found._store(disk)
        return found

    def save(self, disk: Disk, cluster_id: str) -> None:
        """Writes the identity file with this cluster id if the id has changed."""
        if cluster_id != self.cluster_id:
            replace(self, cluster_id=cluster_id)._store(disk)

    def _store(self, disk: Disk) -> None:
        disk.store(_FILE, json.dumps(asdict(self)).encode(), durable=True)


def _check_version(version: object) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"version {version!r} is not a positive integer")
    if version > FORMAT_VERSION:
        raise NewerDataFolder(
            f"the data folder has format version {version}, this release supports versions up to {FORMAT_VERSION}; "
            "start it with the release that wrote it or a newer one, or give another --data-dir"
        )

"""Whose a data folder is: noted in the folder itself, so that it cannot be taken for another's."""

import json
import os
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from penstock.foundation.errors import PenstockError, StorageError
from penstock.foundation.ids import uuid_text
from penstock.log.disk import Disk

_FILE: Final = "identity"


class NotOurs(PenstockError):
    """The data folder is another broker's."""


class DataFolderInUse(PenstockError):
    """Another process has this data folder."""


def take_folder(folder: Path) -> int:
    """One process a folder: the lock is the kernel's, so that it goes with the process, or with this descriptor."""
    lock_fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.lockf(lock_fd, os.F_TLOCK, 0)
    except OSError:
        os.close(lock_fd)
        raise DataFolderInUse(
            f"{folder} is used by another penstock process; stop it, or give another --data-dir"
        ) from None
    return lock_fd


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderIdentity:
    """The folder's own id, and whose it is. A cluster id that is empty is not known yet."""

    folder: str
    node_id: int
    cluster_id: str = ""

    @classmethod
    def of(cls, disk: Disk, node_id: int) -> "FolderIdentity":
        """What the folder says; one that says nothing is new, and is noted once its cluster is known."""
        data = disk.load(_FILE)
        if data is None:
            return cls(folder=uuid_text(secrets.token_bytes(16)), node_id=node_id)
        try:
            found = cls(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise StorageError(f"{_FILE} in the data folder is damaged: {error}; bring it back") from error
        if found.node_id != node_id:
            raise NotOurs(
                f"the data folder belongs to broker {found.node_id}; start it with --node-id {found.node_id}, "
                "or give another --data-dir"
            )
        return found

    def save(self, disk: Disk, cluster_id: str) -> None:
        """The folder belongs to this cluster from now on."""
        if cluster_id != self.cluster_id:
            disk.store(_FILE, json.dumps(asdict(replace(self, cluster_id=cluster_id))).encode(), durable=True)

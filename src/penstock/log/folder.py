"""The data folder: paths of the log folders, and the manifest of the logs that must exist."""

import re
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition, uuid_text
from penstock.log.checkpoint import FAILED_SYNC_FILE, FILE_NAME, CheckpointFile
from penstock.log.disk import Disk

LOGS: Final = "logs"
_MANIFEST: Final = "replicas"
_LINE: Final = re.compile(rf"-?{LOGS}/[^/\0]+/[^/\0]+")
_SPARE_LINES: Final = 1000
"""Number of manifest lines, beyond twice the number of logs, above which the manifest is rewritten."""


class LogFolder:
    """Paths of log folders, and the manifest of the logs that were created in this data folder.

    If the manifest lists a log whose folder is missing, the log was lost, and must not start again at offset 0. The
    manifest is an append-only list of paths; a path with a leading `-` was removed. Every method waits for the disk,
    and may be called from several threads.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._lock = threading.Lock()
        self._lines = 0
        self._made: dict[str, None] = {}
        self._load()

    @staticmethod
    def path(name: TopicPartition, topic_id: bytes) -> str:
        """Returns the path of a partition's log folder, which contains the topic id: `logs/orders/0.<id>`."""
        return f"{LOGS}/{name.topic}/{name.partition}.{uuid_text(topic_id)}"

    def _load(self) -> None:
        text = (self.disk.load(_MANIFEST) or b"").decode(errors="replace")
        is_whole = not text or text.endswith("\n")
        for line in text.split("\n"):
            if not _LINE.fullmatch(line):
                is_whole = is_whole and not line  # torn by power loss, so never relied on
            elif line.startswith("-"):
                self._made.pop(line[1:], None)
            else:
                self._made[line] = None
            self._lines += 1
        if not is_whole:
            self._rewrite()

    def is_lost(self, path: str) -> bool:
        return path in self._made and not self.disk.names(path)

    def is_leftover(self, path: str) -> bool:
        """Whether the log's creation or removal was interrupted: its folder has files, but is not in the manifest or
        has no checkpoint file, which every log has from its creation on."""
        names = self.disk.names(path)
        return bool(names) and (path not in self._made or FILE_NAME not in names)

    def find_lost(self) -> frozenset[str]:
        """Returns the paths of all logs that the manifest lists and whose folders are missing."""
        return frozenset(path for path in list(self._made) if self.is_lost(path))

    def find_failed(self) -> frozenset[str]:
        """Returns the paths of logs that may have lost batches, because an fsync failed in an earlier process."""
        return frozenset(path for path in list(self._made) if FAILED_SYNC_FILE in self.disk.names(path))

    def make(self, paths: Iterable[str]) -> None:
        """Creates log folders and adds them to the manifest, durably."""
        with self._lock:
            fresh = [path for path in paths if path not in self._made]
            if not fresh:
                return
            parents = sorted({path.rpartition("/")[0] for path in fresh})
            is_first = not self._made
            for path in fresh:
                self.disk.make_folder(path)
                # Not empty: a process killed before it opens the log would take an empty folder for a lost log.
                # Journaling file systems make the file durable together with the manifest, which is synced next.
                CheckpointFile(self.disk, path).reserve()
            for parent in (*parents, LOGS, *([""] if is_first else [])):
                self.disk.sync_folder(parent)
            self._append(fresh)
            self._made.update(dict.fromkeys(fresh))

    def is_made(self, path: str) -> bool:
        return path in self._made

    def remove(self, paths: Sequence[str]) -> None:
        """Removes whole logs: first from the manifest, then the folders, so that after a crash no log looks lost."""
        with self._lock:
            noted = [path for path in paths if path in self._made]
            for path in noted:
                del self._made[path]
            is_noted = self._try_append([f"-{path}" for path in noted])
            for path in paths:
                if not is_noted:  # first the checkpoint: without it, what a crash leaves is no log
                    self.disk.remove(f"{path}/{FILE_NAME}")
                self.disk.remove(path)
            for parent in sorted({path.rpartition("/")[0] for path in paths}):
                if not self.disk.names(parent):
                    self.disk.remove(parent)
            if not is_noted:
                self._append([f"-{path}" for path in noted])

    def _try_append(self, lines: Sequence[str]) -> bool:
        """Appends to the manifest; returns False on a full disk: the caller then frees space before it retries."""
        try:
            self._append(lines)
        except StorageError:
            return False
        return True

    def _append(self, lines: Sequence[str]) -> None:
        """Appends lines to the manifest, durably. On a full disk none of them is written."""
        if not lines:
            return
        if self._lines + len(lines) > 2 * len(self._made) + _SPARE_LINES:
            self._rewrite(lines)
            return
        file = self.disk.open(_MANIFEST)
        is_new = not file.size
        try:
            file.append("".join(f"{line}\n" for line in lines).encode())
            file.sync()
        finally:
            file.close()
        if is_new:
            self.disk.sync_folder("")
        self._lines += len(lines)

    def _rewrite(self, lines: Sequence[str] = ()) -> None:
        made = self._made | dict.fromkeys(line for line in lines if not line.startswith("-"))
        self.disk.store(_MANIFEST, "".join(f"{path}\n" for path in made).encode(), durable=True)
        self._lines = len(made)

    def strays(self, known: Iterable[str]) -> list[str]:
        """Returns the paths of log folders that are not in `known`: while this broker was down, their topics were
        deleted or their replicas moved to other brokers."""
        found = {
            f"{LOGS}/{topic}/{name}" for topic in self.disk.names(LOGS) for name in self.disk.names(f"{LOGS}/{topic}")
        }
        return sorted((found | self._made.keys()) - set(known))

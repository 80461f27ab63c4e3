"""The logs below one data folder: where each one lies, and which ones must be there."""

from collections.abc import Iterable

from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition, uuid_text
from penstock.log.checkpoint import CheckpointFile
from penstock.log.disk import Disk

LOGS = "logs"
_MANIFEST = "replicas"


class LogFolder:
    """Names of log folders, and the manifest of those that were ever made here.

    A partition whose folder is missing though the manifest names it was lost, and must not begin again at 0.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        data = disk.load(_MANIFEST) or b""
        self._made = {line for line in data.decode().splitlines() if line}

    @staticmethod
    def path(name: TopicPartition, topic_id: bytes) -> str:
        """One folder for each incarnation of a topic, readable by people: `logs/orders/0.<id>`."""
        return f"{LOGS}/{name.topic}/{name.partition}.{uuid_text(topic_id)}"

    def is_lost(self, path: str) -> bool:
        return path in self._made and not self.disk.names(path)

    def is_left(self, path: str) -> bool:
        """Whether there is something of a log that was removed, or never made: nobody knows how much of it."""
        return path not in self._made and bool(self.disk.names(path))

    def make(self, paths: Iterable[str]) -> None:
        """Make folders that are new, and note them, so that both survive power loss."""
        fresh = [path for path in paths if path not in self._made]
        if not fresh:
            return
        for path in fresh:
            self.disk.make_folder(path)
            # With something in it: whoever is killed before the log is opened must not find it lost. File systems
            # that journal make it durable with the manifest, which is synced after it.
            CheckpointFile(self.disk, path).reserve()
        for parent in sorted({path.rpartition("/")[0] for path in fresh} | {LOGS, ""}, reverse=True):
            self.disk.sync_folder(parent)
        before = self._made
        self._made = before | set(fresh)
        try:
            self._save()
        except StorageError:
            self._made = before  # a full disk: what is not noted was not made, and can be made later
            raise

    def is_made(self, path: str) -> bool:
        return path in self._made

    def remove(self, paths: Iterable[str]) -> None:
        """Remove whole logs. The manifest first: what it does not name may go missing."""
        gone = list(paths)
        self._made.difference_update(gone)
        noted = self._try_save()
        for path in gone:
            self.disk.remove(path)
            parent = path.rpartition("/")[0]
            if not self.disk.names(parent):
                self.disk.remove(parent)
        if not noted:
            self._save()

    def _try_save(self) -> bool:
        """False if there is no room, which a removal is about to make."""
        try:
            self._save()
        except StorageError:
            return False
        return True

    def strays(self, known: Iterable[str]) -> list[str]:
        """Folders of logs that nobody knows: their topics were deleted while this broker was away."""
        found = {
            f"{LOGS}/{topic}/{name}" for topic in self.disk.names(LOGS) for name in self.disk.names(f"{LOGS}/{topic}")
        }
        return sorted((found | self._made) - set(known))

    def _save(self) -> None:
        self.disk.store(_MANIFEST, "\n".join(sorted(self._made)).encode(), durable=True)

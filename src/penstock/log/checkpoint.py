"""The checkpoint of a log: log start offset, recovery point, durable end offset, and cleaner offset.

There are two checkpoints, for two kinds of failure. A killed process loses nothing that was written, because the page
cache belongs to the kernel: everything below `written_to` is intact. A machine that stopped may have lost all that
was not fsynced: only `synced_to` holds. The kernel's boot id tells the two apart.

The file is overwritten in place, so that a full disk does not prevent it. Each kind of checkpoint has two slots of
one sector, written in turn: a torn write leaves the previous one.
"""

import json
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Final

from penstock.foundation.errors import StorageError
from penstock.log.disk import Disk, File

FILE_NAME: Final = "checkpoint"
HOLES_FILE: Final = "holes"
"""Marks a log with offset gaps left by compaction, in case the checkpoint is lost: gaps are not damage then."""
FAILED_SYNC_FILE: Final = "failed-sync"
"""Marks a log whose fsync has failed, until recovery has checked its unsynced tail and synced it again."""
SLOT_BYTES: Final = 512
FILE_BYTES: Final = 4 * SLOT_BYTES
NO_BOOT: Final = ""
_WRITTEN: Final = 0
_SYNCED: Final = 2
"""The first of the two slots of each kind of checkpoint."""


@contextmanager
def failed_sync_noted(disk: Disk, folder: str) -> Iterator[None]:
    """Writes the failed-sync marker file if an fsync fails in this block.

    The kernel may drop pages that it could not write, and reports that only once. So nothing beyond the last
    successful sync may be trusted, in this boot or, because of the marker file, in the next.
    """
    try:
        yield
    except StorageError:
        with suppress(StorageError):  # best effort: the error itself takes the log offline
            disk.store(f"{folder}/{FAILED_SYNC_FILE}", b"")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    start_offset: int = 0
    """The log start offset: retention and trims move it."""
    written_to: int = 0
    """The log end offset when this was written (the recovery point if the process is killed)."""
    synced_to: int = 0
    """Everything below survives power loss (the recovery point after power loss)."""
    clean_to: int = 0
    """Everything below was compacted."""
    has_holes: bool = False
    """The log has been compacted: offsets may be missing between batches and between segments."""
    is_truncating: bool = False
    """A truncation was in progress. If the process is killed then, the removed batches may still be on the disk,
    and power loss could bring them back instead of those appended since."""
    boot_id: str = ""

    def cut_to(self, end_offset: int) -> "Checkpoint":
        """Returns the checkpoint of the log after truncation to `end_offset`."""
        synced_to, clean_to = min(self.synced_to, end_offset), min(self.clean_to, end_offset)
        return replace(self, written_to=end_offset, synced_to=synced_to, clean_to=clean_to, is_truncating=False)

    def trusted_to(self, boot_id: str) -> int:
        return self.written_to if self.boot_id == boot_id else self.synced_to


_FIELDS: Final = tuple(entry.name for entry in fields(Checkpoint))


class CheckpointFile:
    """The checkpoint file of one log."""

    __slots__ = ("_disk", "_folder", "_path", "_turns", "has_failed")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{FILE_NAME}"
        self._turns = array("q", (0, 0, 0))  # by kind
        self.has_failed = False
        """True after a failed fsync: a later successful one does not cover what the failed one may have dropped."""

    def load(self, boot_id: str, has_failed: bool = False) -> Checkpoint | None:
        """Returns the checkpoint that is valid in this boot; None if no slot is intact: recovery reads the whole log.

        `has_failed`: an fsync has failed, so only the synced checkpoint counts, but the log start offset is kept.
        """
        data = self._disk.load(self._path)
        if data is None:
            return None
        found: dict[int, Checkpoint] = {}
        for kind in (_WRITTEN, _SYNCED):
            for turn, mark in _read_slots(data, kind):
                if turn >= self._turns[kind]:
                    self._turns[kind], found[kind] = turn, mark
        written, synced = found.get(_WRITTEN), found.get(_SYNCED)
        if written is not None and written.boot_id != boot_id:
            written = None
        if not has_failed:
            return written or synced
        if synced is None:
            return None
        return replace(synced, boot_id=NO_BOOT, start_offset=(written or synced).start_offset)

    def reserve(self) -> None:
        """Allocates the space for all slots, so that they can be written on a full disk."""
        self._open().close()

    def _open(self) -> File:
        file = self._disk.open(self._path)
        if file.size < FILE_BYTES:  # new, or torn at creation
            file.append(bytes(FILE_BYTES - file.size))
        return file

    def save(self, mark: Checkpoint) -> None:
        """Writes a checkpoint that survives a crash of the process."""
        self._write(_WRITTEN, mark, sync=False)

    def save_synced(self, mark: Checkpoint) -> None:
        """Writes and fsyncs a checkpoint that survives power loss. May be called from another thread."""
        self._write(_SYNCED, mark, sync=True)

    def _write(self, kind: int, mark: Checkpoint, sync: bool) -> None:
        self._turns[kind] += 1
        turn = self._turns[kind]
        body = json.dumps([turn, {name: getattr(mark, name) for name in _FIELDS}]).encode()
        text = b"%08x %s" % (zlib.crc32(body), body)
        file = self._open()
        file.write_at((kind + turn % 2) * SLOT_BYTES, text.ljust(SLOT_BYTES, b"\0"))
        if sync:
            with failed_sync_noted(self._disk, self._folder):
                file.sync()
        file.close()


def _read_slots(data: bytes, kind: int) -> Iterator[tuple[int, Checkpoint]]:
    """Yields the checkpoints of one kind whose checksum is right, with their turn numbers."""
    for slot in (kind, kind + 1):
        crc, _, body = data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES].rstrip(b"\0").partition(b" ")
        if body and crc == b"%08x" % zlib.crc32(body):
            turn, values = json.loads(body)
            yield turn, Checkpoint(**values)


@dataclass(frozen=True, slots=True)
class HolesMarker:
    """Makes it durable that a log has offset gaps. Runs on a thread, before there are any."""

    disk: Disk
    folder: str
    checkpoint_file: CheckpointFile
    checkpoint: Checkpoint
    is_unsynced: bool
    """Whether that is not known to be durable already."""

    def run(self) -> None:
        if self.is_unsynced:  # the file first: a checkpoint with has_holes relies on it
            self.disk.store(f"{self.folder}/{HOLES_FILE}", b"", durable=True)
            self.checkpoint_file.save_synced(self.checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTicket:
    """Files to fsync on a thread, and the checkpoint that is valid afterwards."""

    disk: Disk
    folder: str
    files: tuple[File, ...]
    checkpoint_file: CheckpointFile
    checkpoint: Checkpoint
    durable_stable_offset: int
    """Every transaction with records below has ended; its marker is fsynced with the rest."""
    marks_holes: bool = False
    """Whether the files have offset gaps for the first time."""

    @property
    def end_offset(self) -> int:
        return self.checkpoint.synced_to

    def run(self) -> None:
        try:
            if self.marks_holes:
                self.disk.store(f"{self.folder}/{HOLES_FILE}", b"", durable=True)
            with failed_sync_noted(self.disk, self.folder):
                for file in self.files:
                    file.sync()
                self.disk.sync_folder(self.folder)
            self.checkpoint_file.save_synced(self.checkpoint)
        except StorageError:
            self.checkpoint_file.has_failed = True
            raise

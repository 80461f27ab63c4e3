"""The checkpoint of a log: log start offset, recovery point, durable end offset, and cleaner offset.

There are two kinds of checkpoint, for two kinds of failure. If a process is killed, everything it wrote (below
`written_to`) is intact, because the page cache belongs to the kernel. If the machine stops, everything that was not
fsynced (from `synced_to` on) may be lost. The kernel's boot id tells the two failures apart.

The file is overwritten in place, so that it can be written on a full disk. Each kind of checkpoint has two slots of
one sector, written alternately: a torn write leaves the previous checkpoint intact.
"""

import json
import zlib
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Final

from penstock.foundation.errors import StorageError
from penstock.log.disk import Disk, File

FILE_NAME: Final = "checkpoint"
HOLES_FILE: Final = "holes"
"""Name of the file that marks a log as compacted: recovery then does not take offset gaps for damage."""
FAILED_SYNC_FILE: Final = "failed-sync"
"""Name of the file that marks a log whose fsync failed, until recovery has checked and fsynced the log's tail."""
SLOT_BYTES: Final = 512
FILE_BYTES: Final = 4 * SLOT_BYTES
NO_BOOT: Final = ""
_WRITTEN: Final = 0
_SYNCED: Final = 2
"""Index, in the checkpoint file, of the first of two slots for fsynced checkpoints; `_WRITTEN`: for the others."""


@contextmanager
def failed_sync_noted(disk: Disk, folder: str) -> Iterator[None]:
    """Context manager: writes the failed-sync marker file if an fsync in its block fails.

    The kernel may drop pages that it could not write, and reports that only once. So nothing beyond the last
    successful fsync may be trusted, neither in this boot nor (hence the marker file) in the next.
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
    """The log start offset."""
    written_to: int = 0
    """The log end offset when this checkpoint was written: the recovery point if only the process was killed."""
    synced_to: int = 0
    """The durable end offset: the recovery point after power loss."""
    clean_to: int = 0
    """The cleaner offset: everything below it is compacted."""
    has_holes: bool = False
    """Whether the log was compacted, so that offsets may be missing between batches and between segments."""
    is_truncating: bool = False
    """Whether a truncation was in progress: removed batches may still be on the disk, and power loss could bring
    them back in place of batches appended later."""
    boot_id: str = ""

    def cut_to(self, end_offset: int) -> "Checkpoint":
        """Returns the checkpoint to use after the log was truncated to `end_offset`."""
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
        """Whether an fsync of this log has failed: the kernel may have dropped pages, which no later fsync would
        write."""

    def load(self, boot_id: str, has_failed: bool = False) -> Checkpoint | None:
        """Returns the checkpoint from which recovery starts: the newest one written in this boot (`boot_id`), else
        the newest fsynced one. If `has_failed` (an fsync of this log failed): the newest fsynced one, but with the
        log start offset of the newest one written in this boot. Returns None if recovery must read the whole log."""
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
        """Creates the file at its full size, so that checkpoints can be written on a full disk."""
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
        with closing(self._open()) as file:
            file.write_at((kind + turn % 2) * SLOT_BYTES, text.ljust(SLOT_BYTES, b"\0"))
            if sync:
                with failed_sync_noted(self._disk, self._folder):
                    file.sync()


def _read_slots(data: bytes, kind: int) -> Iterator[tuple[int, Checkpoint]]:
    """Yields the checkpoints of one kind whose checksum is right, each with its sequence number."""
    for slot in (kind, kind + 1):
        crc, _, body = data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES].rstrip(b"\0").partition(b" ")
        if body and crc == b"%08x" % zlib.crc32(body):
            turn, values = json.loads(body)
            yield turn, Checkpoint(**values)


@dataclass(frozen=True, slots=True)
class HolesMarker:
    """Durably marks a log as having offset gaps, which recovery would otherwise take for damage. Runs on a thread,
    before the first gap is made."""

    disk: Disk
    folder: str
    checkpoint_file: CheckpointFile
    checkpoint: Checkpoint
    is_unsynced: bool
    """Whether HOLES_FILE, the marker for offset gaps, may need an fsync; if not, `run` does nothing."""

    def run(self) -> None:
        if self.is_unsynced:  # the file first: a checkpoint with has_holes relies on it
            self.disk.store(f"{self.folder}/{HOLES_FILE}", b"", durable=True)
            self.checkpoint_file.save_synced(self.checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTicket:
    """Files to fsync on a thread, and the checkpoint that is valid after the fsync."""

    disk: Disk
    folder: str
    files: tuple[File, ...]
    checkpoint_file: CheckpointFile
    checkpoint: Checkpoint
    durable_stable_offset: int
    """Offset below which, once the fsync is done, every transaction has ended with a durable marker."""
    marks_holes: bool = False
    """Whether `run` must first fsync HOLES_FILE, which marks the log as having offset gaps."""

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

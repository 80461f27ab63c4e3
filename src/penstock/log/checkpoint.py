"""What a log may trust after a restart: a small file that is written over, never replaced, so that a full disk
cannot keep it from being written.

Two marks, because two things can go wrong. A killed process loses nothing that was written, since the page cache
is the kernel's: after it, everything up to `written_to` is as it was. A machine that stopped may have lost
whatever was not synced: after it, only `synced_to` holds. The kernel's boot id tells the two apart.

Each kind of mark has two slots of one sector, written in turn: a torn write leaves the one before.
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
"""Marks a log in which compaction has left offset gaps, in case the checkpoint is lost: gaps are not damage then."""
FAILED_SYNC_FILE: Final = "failed-sync"
"""Marks a log whose fsync has failed, until recovery has checked its unsynced tail and synced it again."""
SLOT_BYTES: Final = 512
FILE_BYTES: Final = 4 * SLOT_BYTES
NO_BOOT: Final = ""
_OFTEN: Final = 0
_SYNCED: Final = 2
"""The first of the two slots of each kind of mark."""


@contextmanager
def failed_sync_noted(disk: Disk, folder: str) -> Iterator[None]:
    """Note it in the log's folder if an fsync fails in this block.

    The kernel may have dropped the pages that it could not write, and reports that once. So nothing beyond the last
    sync may be trusted from then on, neither in this boot nor, for want of a mark that says so, in the next.
    """
    try:
        yield
    except StorageError:
        with suppress(StorageError):  # not even that can be written: the error itself takes the log offline
            disk.store(f"{folder}/{FAILED_SYNC_FILE}", b"")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    start_offset: int = 0
    """The first offset that readers may see (retention and trims move it)."""
    written_to: int = 0
    """The log's end when this was written."""
    synced_to: int = 0
    """Everything below survives power loss."""
    clean_to: int = 0
    """Everything below was compacted."""
    has_holes: bool = False
    """Compaction was here once: offsets may be missing between batches and between segments."""
    is_truncating: bool = False
    """A truncation was under way. If the process is killed in it, what was cut off may still be on the disk, and
    power loss would bring it back in the place of what was appended since then."""
    boot_id: str = ""

    def cut_to(self, end_offset: int) -> "Checkpoint":
        """The mark of the log once it ends there."""
        synced_to, clean_to = min(self.synced_to, end_offset), min(self.clean_to, end_offset)
        return replace(self, written_to=end_offset, synced_to=synced_to, clean_to=clean_to, is_truncating=False)

    def trusted_to(self, boot_id: str) -> int:
        return self.written_to if self.boot_id == boot_id else self.synced_to


_FIELDS: Final = tuple(entry.name for entry in fields(Checkpoint))


class CheckpointFile:
    """The marks of one log."""

    __slots__ = ("_disk", "_folder", "_path", "_turns", "has_failed")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{FILE_NAME}"
        self._turns = array("q", (0, 0, 0))  # by kind
        self.has_failed = False
        """Whether a sync has failed: a later one says nothing about what that did not write, and may have dropped."""

    def load(self, boot_id: str, has_failed: bool = False) -> Checkpoint | None:
        """The mark to go by; None if there is none that is whole: then the log is read from its start.

        `has_failed`: an fsync has failed, so only what was synced counts. Where the log begins is known nevertheless.
        """
        data = self._disk.load(self._path)
        if data is None:
            return None
        found: dict[int, Checkpoint] = {}
        for kind in (_OFTEN, _SYNCED):
            for turn, mark in _whole(data, kind):
                if turn >= self._turns[kind]:
                    self._turns[kind], found[kind] = turn, mark
        often, synced = found.get(_OFTEN), found.get(_SYNCED)
        if often is not None and often.boot_id != boot_id:
            often = None
        if not has_failed:
            return often or synced
        if synced is None:
            return None
        return replace(synced, boot_id=NO_BOOT, start_offset=(often or synced).start_offset)

    def reserve(self) -> None:
        """Take the space for all marks, so that a disk that is full later does not matter."""
        self._open().close()

    def _open(self) -> File:
        file = self._disk.open(self._path)
        if file.size < FILE_BYTES:  # new, or torn when it was new
            file.append(bytes(FILE_BYTES - file.size))
        return file

    def save(self, mark: Checkpoint) -> None:
        """Survives the process."""
        self._write(_OFTEN, mark, sync=False)

    def save_synced(self, mark: Checkpoint) -> None:
        """Survives power loss. May be called from another thread."""
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


def _whole(data: bytes, kind: int) -> Iterator[tuple[int, Checkpoint]]:
    """The marks of one kind whose checksum is right."""
    for slot in (kind, kind + 1):
        crc, _, body = data[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES].rstrip(b"\0").partition(b" ")
        if body and crc == b"%08x" % zlib.crc32(body):
            turn, values = json.loads(body)
            yield turn, Checkpoint(**values)


@dataclass(frozen=True, slots=True)
class HolesNote:
    """Makes it survive power loss that offsets are missing in a log. Runs on a thread, before they are."""

    disk: Disk
    folder: str
    marks: CheckpointFile
    checkpoint: Checkpoint
    is_news: bool
    """Whether that is not known to be durable already."""

    def run(self) -> None:
        if self.is_news:  # the file first: a checkpoint with has_holes relies on it
            self.disk.store(f"{self.folder}/{HOLES_FILE}", b"", durable=True)
            self.marks.save_synced(self.checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncTicket:
    """Files to sync on a thread, and the checkpoint that is true when that is done."""

    disk: Disk
    folder: str
    files: tuple[File, ...]
    marks: CheckpointFile
    checkpoint: Checkpoint
    decided_to: int
    """Every transaction with records below has ended, and its marker is synced with the rest."""
    notes_holes: bool = False
    """Whether offsets are missing for the first time in what is synced."""

    @property
    def end_offset(self) -> int:
        return self.checkpoint.synced_to

    def run(self) -> None:
        try:
            if self.notes_holes:
                self.disk.store(f"{self.folder}/{HOLES_FILE}", b"", durable=True)
            with failed_sync_noted(self.disk, self.folder):
                for file in self.files:
                    file.sync()
                self.disk.sync_folder(self.folder)
            self.marks.save_synced(self.checkpoint)
        except StorageError:
            self.marks.has_failed = True
            raise

"""The files of one log: its segments, and what is remembered beside them. One thread (the event loop's) owns them.

Whatever waits for the disk is a job of the log's IoQueue, which runs it on another thread.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

from penstock.foundation.errors import StorageError
from penstock.foundation.settings import LONG_MAX
from penstock.log.checkpoint import HOLES_FILE, Checkpoint, CheckpointFile, HolesNote, SyncTicket
from penstock.log.disk import Disk
from penstock.log.epochs import Epochs
from penstock.log.io_queue import IoQueue, Outcome, Work
from penstock.log.producer_state import NO_OFFSET, FrozenProducers
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings
from penstock.log.snapshots import Snapshots

EPOCHS_FILE: Final = "epochs"
SNAPSHOT_BYTES: Final = 16 << 20
"""Producer state is snapshotted when this much was appended since the last time."""


class LogFiles:
    """Segments, oldest first; the last one is appended to. What a log is apart from appends and reads."""

    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        settings: LogSettings,
        segments: list[Segment],
        producers: Producers,
        epochs: Epochs,
        marks: CheckpointFile,
        checkpoint: Checkpoint,
        end_offset: int,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.settings = settings
        self.segments = segments
        self._active = segments[-1]
        self._bases = [segment.base_offset for segment in segments]
        self.producers = producers
        self.epochs = epochs
        self.start_offset = max(checkpoint.start_offset, segments[0].base_offset)
        self.end_offset = end_offset
        self.offset_limit = LONG_MAX
        """Offsets from here on may not be given out yet (memory logs reserve theirs)."""
        self.marks = marks
        self.checkpoint = checkpoint
        # An earlier process may have closed segments that nobody has synced yet.
        self._unsynced = [
            segment for segment, following in pairwise(segments) if following.base_offset > checkpoint.synced_to
        ]
        self._closed_bytes = sum(segment.size for segment in segments[:-1])
        self._snapshot_changes = 0  # what was read back from batches is in no snapshot yet
        self._snapshot_at_bytes = self.size_bytes
        self._jitter_ms = 0
        self._frozen: tuple[int, FrozenProducers] | None = None
        """Producer state that waits to be saved, and its offset."""
        self.epochs_unsaved = False
        self.io = IoQueue()
        """Disk work of this log. A broker replaces it by one whose jobs run on threads."""
        self._is_pinned = False
        """Whether a job works on segments: then none may be removed from the list of them."""
        self._are_holes_synced = False
        self._snapshots = Snapshots(disk, folder)
        self.newest_abort = next((found.aborted.newest for found in segments[::-1] if found.aborted.count), NO_OFFSET)
        """No marker behind this offset has aborted anything."""
        self.has_transactions = self.newest_abort >= 0 or not producers.open.are_decided
        """Whether readers of committed records may see other things here than others do."""
        self.decided_to = self._decided_at_start()
        """Transactions below have ended, and power loss does not undo that: compaction may build on it."""
        self._is_doubtful = settings.compacted and self.decided_to < checkpoint.synced_to

    def _decided_at_start(self) -> int:
        """Where markers may not be synced, nobody knows which: then the next sync tells."""
        if self.checkpoint.synced_to < self.end_offset:
            known = self.producers.by_id.values()
            return 0 if any(found.is_transactional for found in known) else self.checkpoint.synced_to
        return self._decided_now()

    def _decided_now(self) -> int:
        first = self.producers.open.first_offset
        return self.end_offset if first is None else first

    def configure(self, settings: LogSettings) -> None:
        """The topic's settings may have changed."""
        self.settings = settings
        self.producers.limit = settings.max_producer_ids

    # -- growing

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader's epoch begins at an offset. It is saved with the next checkpoint that covers a batch of it."""
        if self.epochs.note(epoch, start_offset):
            self.epochs_unsaved = True

    def _save_epochs(self) -> bool:
        """Save the epochs if batches were written under new ones; false if the disk is too full for that."""
        if self.epochs_unsaved and self.epochs.latest_start < self.end_offset:
            try:
                self.disk.store(f"{self.folder}/{EPOCHS_FILE}", self.epochs.dump())
            except StorageError:
                return False
            self.epochs_unsaved = False
        return True

    def segments_from(self, offset: int) -> Iterator[Segment]:
        yield from self.segments[max(0, bisect_right(self._bases, offset) - 1) :]

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self.segments[-1].size

    # -- marks

    def save_checkpoint(self) -> None:
        """Note how far the log may be trusted if the process is killed."""
        grown = self.size_bytes - self._snapshot_at_bytes
        if not 0 <= grown < SNAPSHOT_BYTES:
            self.snapshot_producers()
        self._save_marks()

    def _save_marks(self) -> None:
        mark = replace(self.checkpoint, start_offset=self.start_offset)
        if self._save_epochs():
            mark = replace(mark, written_to=self.end_offset)
        self.marks.save(mark)
        self.checkpoint = mark

    def note_holes(self) -> None:
        """Offsets are about to be missing: what has gaps must be vouched for, or they would look like damage.

        This survives the process. Before anything goes that a synced mark vouches for, a HolesNote must run, on a
        thread; what is only appended behind a gap is covered by the next sync.
        """
        if not self.checkpoint.has_holes:  # the file first: a checkpoint with has_holes relies on it
            self.disk.store(f"{self.folder}/{HOLES_FILE}", b"")
            self.checkpoint = replace(self.checkpoint, has_holes=True)
        self._save_marks()
        if self.checkpoint_is_stale:
            raise StorageError(f"{self.folder}: the disk is too full to vouch for offsets that are missing")

    def _holes_note(self) -> HolesNote:
        """Makes what `note_holes` has noted survive power loss."""
        is_news = not self._are_holes_synced
        return HolesNote(self.disk, self.folder, self.marks, self.checkpoint, is_news)

    def snapshot_producers(self, even_if_unchanged: bool = False) -> None:
        """Have the producers' state saved as of now, so that less of the log must be read back at the next start."""
        self._snapshot_at_bytes = self.size_bytes
        if self.producers.changes == self._snapshot_changes and not even_if_unchanged:
            return
        is_queued = self._frozen is not None
        self._frozen = self.end_offset, self.producers.freeze()
        self._snapshot_changes = self.producers.changes
        if not is_queued:
            self.io.add(self._begin_snapshot, self._end_snapshot)

    def _begin_snapshot(self) -> Work | None:
        if self._frozen is None:
            return None
        (offset, frozen), self._frozen = self._frozen, None
        snapshots, bases = self._snapshots, list(self._bases)

        def save() -> bool:
            is_saved = snapshots.save(offset, frozen)
            if is_saved:
                snapshots.prune(bases)
            return is_saved

        return save

    def _end_snapshot(self, outcome: Outcome) -> None:
        if not outcome.value:
            self._snapshot_changes = -1  # the next occasion tries again

    @property
    def checkpoint_is_stale(self) -> bool:
        return self.checkpoint.written_to != self.end_offset

    def _forget_unsynced(self) -> None:
        """Segments that are gone need no sync."""
        self._unsynced = [segment for segment in self._unsynced if segment in self.segments]

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether segments were closed since the last sync, or compaction waits for one."""
        return bool(self._unsynced) or self._is_doubtful

    def begin_sync(self) -> SyncTicket:
        """What to sync, on a thread, as a job of `io`; give the ticket to `end_sync` when it has run.

        Raises StorageError once an fsync has failed: then only recovery knows what is left.
        """
        if self.marks.has_failed:
            raise StorageError(f"{self.folder}: an fsync has failed; restart the broker to have the log read back")
        segments = (*self._unsynced, self.segments[-1])
        files = [segment.file for segment in segments]
        files += [file for segment in segments if (file := segment.aborted.take_unsynced())]
        self._unsynced.clear()
        self._is_doubtful = False
        return SyncTicket(
            disk=self.disk,
            folder=self.folder,
            files=tuple(files),
            marks=self.marks,
            checkpoint=replace(
                self.checkpoint,
                start_offset=self.start_offset,
                written_to=self.end_offset,
                synced_to=self.end_offset,
            ),
            decided_to=self._decided_now(),
            notes_holes=self.checkpoint.has_holes and not self._are_holes_synced,
        )

    def end_sync(self, ticket: SyncTicket) -> None:
        """A ticket has run: what it covers survives power loss."""
        self.checkpoint = replace(self.checkpoint, synced_to=min(ticket.end_offset, self.end_offset))
        self.decided_to = min(ticket.decided_to, self.end_offset)
        self._are_holes_synced |= ticket.notes_holes

    def sync(self) -> None:
        """Sync now, and wait for it. For tests, and for logs that nobody else uses any more, or yet."""
        ticket = self.begin_sync()
        ticket.run()
        self.end_sync(ticket)

    def close(self) -> None:
        """Sync, note that all of it may be trusted, and let go of the files. Waits for the disk; its queue is
        stopped, or has nothing to do."""
        if self._frozen is not None or self.producers.changes != self._snapshot_changes:
            self._frozen = None
            if self._snapshots.save(self.end_offset, self.producers.freeze()):
                self._snapshots.prune(self._bases)
        if self._unsynced or self.checkpoint.synced_to != self.end_offset:
            self.sync()
        for segment in self.segments:
            with suppress(StorageError):  # a full disk: what is missing in an index is found in its segment
                segment.index.write_out()
        self._save_marks()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files without a word: the log is about to be removed, or cannot be used any more."""
        for segment in self.segments:
            segment.close()

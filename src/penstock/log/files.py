"""The files of one log: segments, checkpoint, leader epochs, producer snapshots. Owned by the event loop's thread.

Work that waits for the disk is a job of the log's IoQueue, which runs the job on another thread.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

from penstock.foundation.errors import StorageError
from penstock.foundation.settings import LONG_MAX
from penstock.log.checkpoint import HOLES_FILE, Checkpoint, CheckpointFile, HolesMarker, SyncTicket
from penstock.log.disk import Disk
from penstock.log.epochs import LeaderEpochCache
from penstock.log.io_queue import IoQueue, Outcome, Work
from penstock.log.producer_state import NO_OFFSET, ProducerSnapshot
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings
from penstock.log.snapshots import Snapshots

EPOCHS_FILE: Final = "epochs"
SNAPSHOT_BYTES: Final = 16 << 20
"""Interval between two producer state snapshots, in bytes appended to the log."""


class LogFiles:
    """The segments of a log, oldest first (the last one is active), and the files beside them. Base class of Log."""

    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        settings: LogSettings,
        segments: list[Segment],
        producers: Producers,
        epochs: LeaderEpochCache,
        checkpoint_file: CheckpointFile,
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
        """Exclusive upper bound of assignable offsets. Memory logs raise it as they reserve ranges of offsets."""
        self.checkpoint_file = checkpoint_file
        self.checkpoint = checkpoint
        # An earlier process may have closed segments that were not fsynced.
        self._unsynced = [
            segment for segment, following in pairwise(segments) if following.base_offset > checkpoint.synced_to
        ]
        self._closed_bytes = sum(segment.size for segment in segments[:-1])
        self._snapshot_changes = 0  # replayed state is not in a snapshot yet
        self._snapshot_at_bytes = self.size_bytes
        self._jitter_ms = 0
        self._pending_snapshot: tuple[int, ProducerSnapshot] | None = None
        """Offset and producer state of a snapshot that is scheduled but not written yet, or None."""
        self.epochs_unsaved = False
        self.io = IoQueue()
        """Queue of this log's disk jobs. A broker replaces it by a queue that runs the jobs on threads."""
        self._are_segments_pinned = False
        """True while a disk job works on segments: until it ends, no segment may be removed from `segments`."""
        self._are_holes_synced = False
        self._snapshots = Snapshots(disk, folder)
        self.newest_abort = next((found.aborted.newest for found in segments[::-1] if found.aborted.count), NO_OFFSET)
        """Offset of the newest abort marker, or -1 if there is none."""
        self.has_transactions = self.newest_abort >= 0 or not producers.open.is_empty
        """Whether the log may have open or aborted transactions, hidden from read_committed consumers."""
        self.durable_stable_offset = self._initial_stable_offset()
        """Upper bound for compaction: transactions that begin below this offset have ended, with fsynced markers."""
        self._is_sync_needed_by_compaction = settings.compacted and self.durable_stable_offset < checkpoint.synced_to

    def _initial_stable_offset(self) -> int:
        """Returns the `durable_stable_offset` of a log that was just opened: transactions that begin below it have
        ended, with fsynced markers. Returns 0 if power loss could still remove a transaction marker."""
        if self.checkpoint.synced_to < self.end_offset:
            known = self.producers.by_id.values()
            return 0 if any(found.is_transactional for found in known) else self.checkpoint.synced_to
        return self._current_stable_offset()

    def _current_stable_offset(self) -> int:
        first = self.producers.open.first_offset
        return self.end_offset if first is None else first

    def configure(self, settings: LogSettings) -> None:
        """Applies changed topic settings."""
        self.settings = settings
        self.producers.limit = settings.max_producer_ids

    # -- leader epochs

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        """Records the start offset of a leader epoch in memory; a checkpoint saves it once the epoch has a batch."""
        if self.epochs.assign(epoch, start_offset):
            self.epochs_unsaved = True

    def _save_epochs(self) -> bool:
        """Writes the leader epoch cache if batches of new epochs were appended; returns False if the disk is full."""
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

    # -- checkpoints

    def save_checkpoint(self) -> None:
        """Writes a checkpoint without fsync: it is valid after a crash of the process, but not after power loss.
        Also schedules a producer snapshot if the log has grown by SNAPSHOT_BYTES since the last one."""
        grown = self.size_bytes - self._snapshot_at_bytes
        if not 0 <= grown < SNAPSHOT_BYTES:
            self.snapshot_producers()
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        checkpoint = replace(self.checkpoint, start_offset=self.start_offset)
        if self._save_epochs():
            checkpoint = replace(checkpoint, written_to=self.end_offset)
        self.checkpoint_file.save(checkpoint)
        self.checkpoint = checkpoint

    def mark_holes(self) -> None:
        """Marks the log as having offset gaps, so that recovery does not take the gaps for damage.

        The mark survives a crash of the process, but not power loss. So before segments below the durable end offset
        are removed, a HolesMarker must run on a thread. For a gap at the log end, the next fsync makes the mark
        durable.
        """
        if not self.checkpoint.has_holes:  # the file first: a checkpoint with has_holes relies on it
            self.disk.store(f"{self.folder}/{HOLES_FILE}", b"")
            self.checkpoint = replace(self.checkpoint, has_holes=True)
        self._write_checkpoint()
        if self.checkpoint_is_stale:
            raise StorageError(f"{self.folder}: the disk is too full to record offset gaps; free disk space")

    def _holes_marker(self) -> HolesMarker:
        """Returns a job that fsyncs the file with which `mark_holes` has marked the log as having offset gaps."""
        is_unsynced = not self._are_holes_synced
        return HolesMarker(self.disk, self.folder, self.checkpoint_file, self.checkpoint, is_unsynced)

    def snapshot_producers(self, even_if_unchanged: bool = False) -> None:
        """Schedules a snapshot of the producer state, which shortens the replay at the next recovery. Does nothing
        if the state is unchanged since the last snapshot, unless `even_if_unchanged`."""
        self._snapshot_at_bytes = self.size_bytes
        if self.producers.changes == self._snapshot_changes and not even_if_unchanged:
            return
        is_queued = self._pending_snapshot is not None
        self._pending_snapshot = self.end_offset, self.producers.take_snapshot()
        self._snapshot_changes = self.producers.changes
        if not is_queued:
            self.io.add(self._begin_snapshot, self._end_snapshot)

    def _begin_snapshot(self) -> Work | None:
        if self._pending_snapshot is None:
            return None
        (offset, snapshot), self._pending_snapshot = self._pending_snapshot, None
        snapshots, bases = self._snapshots, list(self._bases)

        def save() -> bool:
            is_saved = snapshots.save(offset, snapshot)
            if is_saved:
                snapshots.prune(bases)
            return is_saved

        return save

    def _end_snapshot(self, outcome: Outcome) -> None:
        if not outcome.value:
            self._snapshot_changes = -1  # retry at the next snapshot

    @property
    def checkpoint_is_stale(self) -> bool:
        return self.checkpoint.written_to != self.end_offset

    def _forget_unsynced(self) -> None:
        """Removes deleted segments from the list of segments to fsync."""
        self._unsynced = [segment for segment in self._unsynced if segment in self.segments]

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether an fsync is due: segments were closed since the last fsync, or compaction waits for an fsync."""
        return bool(self._unsynced) or self._is_sync_needed_by_compaction

    def begin_sync(self) -> SyncTicket:
        """Begins an fsync of the log. The caller, a job of the log's I/O queue, runs the returned ticket on a thread,
        and then passes it to `end_sync`. Raises StorageError if an earlier fsync failed: only recovery can determine
        which batches are on the disk."""
        if self.checkpoint_file.has_failed:
            raise StorageError(f"{self.folder}: an fsync has failed; restart the broker to recover the log")
        segments = (*self._unsynced, self.segments[-1])
        files = [segment.file for segment in segments]
        files += [file for segment in segments if (file := segment.aborted.take_unsynced())]
        self._unsynced.clear()
        self._is_sync_needed_by_compaction = False
        return SyncTicket(
            disk=self.disk,
            folder=self.folder,
            files=tuple(files),
            checkpoint_file=self.checkpoint_file,
            checkpoint=replace(
                self.checkpoint,
                start_offset=self.start_offset,
                written_to=self.end_offset,
                synced_to=self.end_offset,
            ),
            durable_stable_offset=self._current_stable_offset(),
            marks_holes=self.checkpoint.has_holes and not self._are_holes_synced,
        )

    def end_sync(self, ticket: SyncTicket) -> None:
        """Advances the durable end offset after the ticket's fsync has succeeded."""
        self.checkpoint = replace(self.checkpoint, synced_to=min(ticket.end_offset, self.end_offset))
        self.durable_stable_offset = min(ticket.durable_stable_offset, self.end_offset)
        self._are_holes_synced |= ticket.marks_holes

    def sync(self) -> None:
        """Fsyncs the log and waits for it. For tests, and for logs that are not in use."""
        ticket = self.begin_sync()
        ticket.run()
        self.end_sync(ticket)

    def close(self) -> None:
        """Writes a producer snapshot, fsyncs, writes the final checkpoint and closes the files. Waits for the
        disk; the log's I/O queue (`io`) must be stopped or idle."""
        if self._pending_snapshot is not None or self.producers.changes != self._snapshot_changes:
            self._pending_snapshot = None
            if self._snapshots.save(self.end_offset, self.producers.take_snapshot()):
                self._snapshots.prune(self._bases)
        if self._unsynced or self.checkpoint.synced_to != self.end_offset:
            self.sync()
        for segment in self.segments:
            with suppress(StorageError):  # a full disk: recovery rebuilds the entries from the segment
                segment.index.write_out()
        self._write_checkpoint()
        self.abandon()

    def abandon(self) -> None:
        """Closes the files without an fsync, for a log that will be removed or has failed."""
        for segment in self.segments:
            segment.close()

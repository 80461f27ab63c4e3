"""Removes parts of a log: trim at the start, truncate at the end, drop or replace segments in between."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from penstock.foundation.errors import OffsetOutOfRange, StorageError
from penstock.log.checkpoint import HolesMarker
from penstock.log.files import LogFiles
from penstock.log.io_queue import Outcome, Work, ignore_outcome
from penstock.log.producers import Producers
from penstock.log.segment import Segment


class TornLog(StorageError):
    """The disk failed in the middle of a change to the log: the log stays offline until recovery has checked it."""


class TruncatableLogFiles(LogFiles):
    """Log files whose segments can be removed. Readers no longer see a removed segment; a job of the log's I/O queue
    deletes its files later."""

    # -- trim at the log start offset

    def trim(self, offset: int) -> None:
        """Moves the log start offset to `offset`, and removes segments that lie entirely below it."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.folder} holds offsets {self.start_offset} to {self.end_offset}, cannot be trimmed to {offset}"
            )
        count = 0 if self._are_segments_pinned else self._count_before(offset)  # the next trim removes pinned ones
        if offset == self.start_offset and not count:
            return
        self.start_offset = offset
        # Written before files are removed: after a restart the log start offset must not move back.
        self._write_checkpoint()
        if count:
            gone = self.segments[:count]
            self._detach(gone)
            # Producers and open transactions cannot be rebuilt from batches that are gone.
            self.snapshot_producers(even_if_unchanged=len(self.producers.open) > 0)
            self._schedule_removal(gone)
        self.epochs_unsaved |= self.epochs.truncate_from_start(offset)

    def _count_before(self, offset: int) -> int:
        count = 0
        while count + 1 < len(self.segments) and self._bases[count + 1] <= offset:
            count += 1
        return count

    def _detach(self, gone: Collection[Segment]) -> None:
        """Takes closed segments out of the log without deleting their files."""
        dropped = set(gone)
        self.segments = [segment for segment in self.segments if segment not in dropped]
        self._bases = [segment.base_offset for segment in self.segments]
        self._closed_bytes -= sum(segment.size for segment in gone)
        self._forget_unsynced()

    def _schedule_removal(self, gone: Collection[Segment]) -> None:
        """Schedules the deletion of detached segments' files after all queued jobs, so that a queued producer
        snapshot is written before the batches are deleted."""
        snapshots = self._snapshots

        def begin() -> Work:
            bases = list(self._bases)

            def remove() -> None:
                for segment in gone:
                    segment.remove()
                snapshots.prune(bases)

            return remove

        self.io.add(begin)

    # -- drop and replace segments

    def drop_segments(
        self, bases: Collection[int], now_ms: int, then: Callable[[Outcome], None] = ignore_outcome
    ) -> None:
        """Removes the closed segments with these base offsets, which leaves offset gaps. `then` gets the bytes freed,
        or an error; it is not called if there is nothing to remove.

        The segments' records must be committed and fsynced. Keeps the log's first segment, and every segment with an
        abort marker of a transaction that began in an earlier segment: without the marker, its records become
        visible.
        """
        gone: list[Segment] = []

        def begin() -> Work | None:
            gone.extend(
                segment
                for segment in self.segments[1:-1]
                if segment.base_offset in bases
                and all(entry.first_offset >= segment.base_offset for entry in segment.aborted.ended_from(0))
            )
            if not gone:
                return None
            self.mark_holes()
            self._are_segments_pinned = True
            until = self.segments.index(gone[-1]) + 1
            return partial(self._prepare_drop, self._holes_marker(), self._bases[:until], self._bases[until], now_ms)

        def end(outcome: Outcome) -> None:
            self._are_segments_pinned = False
            if outcome.error is None:
                self._are_holes_synced = True
                self._detach(gone)
                self._schedule_removal(gone)
                outcome = Outcome(sum(segment.size for segment in gone))
            then(outcome)

        self.io.add(begin, end)

    def _prepare_drop(self, marker: HolesMarker, bases: list[int], behind: int, now_ms: int) -> None:
        """Prepares to drop segments, on a thread. Durably marks the log as having offset gaps, and writes a
        durable producer snapshot, because producer state cannot be rebuilt from dropped batches. The snapshot is
        for the offset `behind`, where the last dropped segment ends: the log end offset never falls below it.
        `bases`: base offsets of all segments below `behind`."""
        marker.run()
        if not self._snapshots.ensure(behind, bases, now_ms, self.settings.max_producer_ids):
            raise StorageError(f"{self.folder}: the disk is too full for a producer snapshot; free disk space")

    def begin_replacement(self, first: int, count: int, end_offset: int) -> Work:
        """Prepares to replace `count` segments from index `first` on, which end before the offset `end_offset`.
        Returns work to run on a thread before the files are replaced: it durably marks the log as having offset
        gaps, and replaces producer snapshots below `end_offset` by a new one. Call `end_replacement` afterwards, also
        after an error."""
        self.mark_holes()
        for segment in self.segments[first : first + count]:
            segment.open_all()  # these names will soon be the new files
        self._are_segments_pinned = True
        marker, offset, snapshot = self._holes_marker(), self.end_offset, self.producers.take_snapshot()

        def prepare() -> None:
            marker.run()
            # Replay from an older snapshot over compacted batches would be wrong: a transaction that was open then
            # would stay open if its marker was removed.
            if self._snapshots.has_before(end_offset):
                if not self._snapshots.save(offset, snapshot, durable=True):
                    raise StorageError(f"{self.folder}: the disk is too full for a producer snapshot")
                self._snapshots.remove_before(end_offset)

        return prepare

    def end_replacement(self, first: int, count: int, fresh: list[Segment] | None, clean_to: int) -> None:
        """Replaces `count` segments from index `first` on by `fresh`, and sets the cleaner offset to `clean_to`.
        If `fresh` is None (compaction failed), keeps the segments and the cleaner offset."""
        self._are_segments_pinned = False
        if fresh is None:
            return
        self._are_holes_synced = True
        old = self.segments[first : first + count]
        self.segments[first : first + count] = fresh
        self._bases = [segment.base_offset for segment in self.segments]
        self._closed_bytes += sum(segment.size for segment in fresh) - sum(segment.size for segment in old)
        self._forget_unsynced()
        self.checkpoint = replace(self.checkpoint, clean_to=clean_to)
        self._write_checkpoint()
        for segment in old:
            segment.close()

    # -- truncation: waits for the disk; the caller must have exclusive access to the log

    def truncate(self, offset: int, now_ms: int) -> None:
        """Removes all batches from `offset` on, and a batch that contains `offset`; a follower does this after
        epoch divergence. Waits for the disk. Raises StorageError if nothing was changed, TornLog if the log must
        not be used any more."""
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            raise OffsetOutOfRange(f"{self.folder} starts at {self.segments[0].base_offset}, cannot end at {offset}")
        holder = next(self.segments_from(offset))
        found = holder.locate(offset)
        if found is not None:
            offset = min(offset, found.base_offset)
            if offset > holder.base_offset or holder is self.segments[0]:  # else the segment is removed whole
                holder.file.prepare_truncate(found.position)
        try:
            self._truncate_files(offset, now_ms)
        except StorageError as error:
            raise TornLog(f"{self.folder} could not be truncated to offset {offset}: {error}") from error

    def _truncate_files(self, offset: int, now_ms: int) -> None:
        """Truncates the files; needs no disk space. After an error the log end offset is unknown."""
        self._lower_checkpoint(offset)
        count = len(self.segments)
        while len(self.segments) > 1 and self._bases[-1] >= offset:
            gone = self.segments.pop()
            self._bases.pop()
            self._closed_bytes -= self.segments[-1].size
            gone.remove()
        if len(self.segments) < count:
            self.disk.sync_folder(self.folder)  # durable, as the cut
        self._forget_unsynced()
        last = self._active = self.segments[-1]
        found = last.locate(offset)
        if found is not None:
            last.cut(found.position)
        self.epochs_unsaved |= self.epochs.truncate_from_end(offset)
        limit = self.settings.max_producer_ids
        self.producers = self._snapshots.restore(self.segments, offset, now_ms, limit=limit)
        self.durable_stable_offset = min(self.durable_stable_offset, self._current_stable_offset())
        self._pending_snapshot = None
        self._snapshot_changes = 0
        self._snapshot_at_bytes = self.size_bytes

    def restart(self, offset: int, now_ms: int) -> None:
        """Removes all batches; the log continues empty at `offset` (truncateFullyAndStartAt). Waits for the disk."""
        self.truncate(self.segments[0].base_offset, now_ms)
        if offset < self.end_offset:
            self._lower_checkpoint(offset)
        self.mark_holes()
        self._holes_marker().run()
        self._are_holes_synced = True
        old = self.segments[0]
        if old.base_offset != offset:
            fresh = Segment(self.disk, self.folder, offset, has_index=False)
            fresh.created_ms = now_ms
            self.segments, self._bases, self._active = [fresh], [offset], fresh
            old.remove()
        self.producers = Producers(self.settings.max_producer_ids)
        self.start_offset = self.end_offset = offset
        self.epochs_unsaved |= self.epochs.truncate_from_end(0)
        self._write_checkpoint()

    def _lower_checkpoint(self, offset: int) -> None:
        """Writes a checkpoint that ends at `offset`, before the truncation: it must not cover removed batches."""
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.durable_stable_offset = min(self.durable_stable_offset, offset)
        checkpoint = replace(self.checkpoint, start_offset=self.start_offset).cut_to(offset)
        self.checkpoint_file.save(replace(checkpoint, is_truncating=True))
        self.checkpoint_file.save_synced(checkpoint)
        self.checkpoint = checkpoint

"""What is taken away from a log: trimmed at its start, truncated at its end, dropped or compacted in between."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from penstock.foundation.errors import OffsetOutOfRange, StorageError
from penstock.log.checkpoint import HolesNote
from penstock.log.files import LogFiles
from penstock.log.io_queue import Outcome, Work, nothing_follows
from penstock.log.producers import Producers
from penstock.log.segment import Segment


class TornLog(StorageError):
    """The disk failed in the middle of a change: only a start that looks at everything knows what is there."""


class ShrinkingFiles(LogFiles):
    """Segments that can go again. Files are removed by jobs of `io`; readers do without them at once."""

    # -- at the start

    def trim(self, offset: int) -> None:
        """Readers see nothing before `offset` any more; whole segments before it are removed."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.folder} holds offsets {self.start_offset} to {self.end_offset}, cannot be trimmed to {offset}"
            )
        count = 0 if self._is_pinned else self._wholly_before(offset)  # then the next trim removes them, too
        if offset == self.start_offset and not count:
            return
        self.start_offset = offset
        # Saved before files go: a restart must not find offsets that a reader was told are gone.
        self._save_marks()
        if count:
            gone = self.segments[:count]
            self._detach(gone)
            # It cannot be read back from batches that are gone; nor, who has not ended a transaction in them.
            self.snapshot_producers(even_if_unchanged=len(self.producers.open) > 0)
            self._remove_soon(gone)
        self.epochs_unsaved |= self.epochs.cut_start(offset)

    def _wholly_before(self, offset: int) -> int:
        count = 0
        while count + 1 < len(self.segments) and self._bases[count + 1] <= offset:
            count += 1
        return count

    def _detach(self, gone: Collection[Segment]) -> None:
        """These segments are not part of the log any more; not the last one."""
        dropped = set(gone)
        self.segments = [segment for segment in self.segments if segment not in dropped]
        self._bases = [segment.base_offset for segment in self.segments]
        self._closed_bytes -= sum(segment.size for segment in gone)
        self._forget_unsynced()

    def _remove_soon(self, gone: Collection[Segment]) -> None:
        """Remove the files of detached segments, behind the jobs that are queued: a snapshot may have to be first."""
        snapshots = self._snapshots

        def begin() -> Work:
            bases = list(self._bases)

            def remove() -> None:
                for segment in gone:
                    segment.remove()
                snapshots.prune(bases)

            return remove

        self.io.add(begin)

    # -- in between

    def drop_finished(
        self, bases: Collection[int], now_ms: int, then: Callable[[Outcome], None] = nothing_follows
    ) -> None:
        """Remove closed segments that nobody needs: a gap is left, as by compaction. `then` gets the bytes freed.

        All in them must be committed and synced. Not the first one, where the log begins. Nor what ends a transaction
        that began in a segment before: what was aborted there would come to life.
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
            self.note_holes()
            self._is_pinned = True
            until = self.segments.index(gone[-1]) + 1
            return partial(self._prepare_drop, self._holes_note(), self._bases[:until], self._bases[until], now_ms)

        def end(outcome: Outcome) -> None:
            self._is_pinned = False
            if outcome.error is None:
                self._are_holes_synced = True
                self._detach(gone)
                self._remove_soon(gone)
                outcome = Outcome(sum(segment.size for segment in gone))
            then(outcome)

        self.io.add(begin, end)

    def _prepare_drop(self, note: HolesNote, bases: list[int], behind: int, now_ms: int) -> None:
        """On a thread, before segments are dropped: the last of those that begin at `bases`, and others.

        What producers have sent, and which transactions have ended, cannot be read back from batches that are gone.
        So there must be a snapshot behind them, where neither power loss nor another leader makes the log end before.
        """
        note.run()
        if not self._snapshots.ensure(behind, bases, now_ms, self.settings.max_producer_ids):
            raise StorageError(f"{self.folder}: the disk is too full to remember what producers have sent")

    def begin_replacement(self, first: int, count: int, end_offset: int) -> Work:
        """Compaction is about to replace `count` segments from number `first` on, which end before an offset: what
        must be durable before, to be done on a thread. `end_replacement` must follow."""
        self.note_holes()
        for segment in self.segments[first : first + count]:
            segment.open_all()  # by name they would soon be the new ones
        self._is_pinned = True
        note, offset, frozen = self._holes_note(), self.end_offset, self.producers.freeze()

        def prepare() -> None:
            note.run()
            # What compaction leaves behind an older snapshot does not lead to the state now: a transaction that was
            # open then would stay so if its marker is gone.
            if self._snapshots.has_before(end_offset):
                self._snapshots.save(offset, frozen, durable=True)
                self._snapshots.remove_before(end_offset)

        return prepare

    def end_replacement(self, first: int, count: int, fresh: list[Segment] | None, clean_to: int) -> None:
        """Compaction is done: `fresh` stands where `count` segments from number `first` on stood. None: it failed."""
        self._is_pinned = False
        if fresh is None:
            return
        self._are_holes_synced = True
        old = self.segments[first : first + count]
        self.segments[first : first + count] = fresh
        self._bases = [segment.base_offset for segment in self.segments]
        self._closed_bytes += sum(segment.size for segment in fresh) - sum(segment.size for segment in old)
        self._forget_unsynced()
        self.checkpoint = replace(self.checkpoint, clean_to=clean_to)
        self._save_marks()
        for segment in old:
            segment.close()

    # -- truncation: waits for the disk; the caller must have exclusive access to the log

    def truncate(self, offset: int, now_ms: int) -> None:
        """Take back everything from `offset` on: what a follower does with what its leader never had.

        A batch that holds `offset` goes whole. StorageError: nothing has changed; TornLog: it must not be used any
        more.
        """
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            raise OffsetOutOfRange(f"{self.folder} starts at {self.segments[0].base_offset}, cannot end at {offset}")
        holder = next(self.segments_from(offset))
        place = holder.locate(offset)
        if place is not None:
            offset = min(offset, place.base_offset)
            if offset > holder.base_offset or holder is self.segments[0]:  # else it goes whole
                holder.file.prepare_cut(place.position)
        try:
            self._take_back(offset, now_ms)
        except StorageError as error:
            raise TornLog(f"{self.folder} could not be cut to offset {offset}: {error}") from error

    def _take_back(self, offset: int, now_ms: int) -> None:
        """Nothing of it needs space. Whatever fails between leaves a log of which nobody knows where it ends."""
        self._lower_marks(offset)
        count = len(self.segments)
        while len(self.segments) > 1 and self._bases[-1] >= offset:
            gone = self.segments.pop()
            self._bases.pop()
            self._closed_bytes -= self.segments[-1].size
            gone.remove()
        if len(self.segments) < count:
            self.disk.sync_folder(self.folder)  # for good, as what is cut
        self._forget_unsynced()
        last = self._active = self.segments[-1]
        place = last.locate(offset)
        if place is not None:
            last.cut(place.position)
        self.epochs_unsaved |= self.epochs.cut_end(offset)
        limit = self.settings.max_producer_ids
        self.producers = self._snapshots.restore(self.segments, offset, now_ms, limit=limit)
        self.decided_to = min(self.decided_to, self._decided_now())  # what has ended may be open again
        self._frozen = None
        self._snapshot_changes = 0
        self._snapshot_at_bytes = self.size_bytes

    def restart(self, offset: int, now_ms: int) -> None:
        """Give up everything, and go on empty at another offset: what a follower does that is too late."""
        self.truncate(self.segments[0].base_offset, now_ms)
        if offset < self.end_offset:
            self._lower_marks(offset)
        self.note_holes()
        self._holes_note().run()
        self._are_holes_synced = True
        old = self.segments[0]
        if old.base_offset != offset:
            fresh = Segment(self.disk, self.folder, offset, has_index=False)
            fresh.created_ms = now_ms
            self.segments, self._bases, self._active = [fresh], [offset], fresh
            old.remove()
        self.producers = Producers(self.settings.max_producer_ids)
        self.start_offset = self.end_offset = offset
        self.epochs_unsaved |= self.epochs.cut_end(0)
        self._save_marks()

    def _lower_marks(self, offset: int) -> None:
        """The log ends at `offset` now. Saved before files are cut: no mark may vouch for what is gone."""
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.decided_to = min(self.decided_to, offset)
        mark = replace(self.checkpoint, start_offset=self.start_offset).cut_to(offset)
        self.marks.save(replace(mark, is_truncating=True))
        self.marks.save_synced(mark)
        self.checkpoint = mark

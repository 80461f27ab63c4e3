"""The files of one log: its segments, and what is remembered beside them. One thread (the event loop's) owns them."""

import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

from penstock.foundation.errors import OffsetOutOfRange, StorageError
from penstock.foundation.settings import LONG_MAX
from penstock.log.checkpoint import Checkpoint, CheckpointFile, SyncTicket
from penstock.log.disk import Disk
from penstock.log.epochs import Epochs
from penstock.log.producer_state import NO_OFFSET
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings, Storage
from penstock.log.snapshots import Snapshots

EPOCHS_FILE: Final = "epochs"
HOLES_FILE: Final = "holes"
"""Is there once compaction has left gaps, so that they are known for what they are even if the checkpoint is lost."""
SNAPSHOT_BYTES: Final = 16 << 20
"""Producer state is snapshotted when this much was appended since the last time."""


class TornLog(StorageError):
    """The disk failed in the middle of a change: only a start that looks at everything knows what is there."""


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
        self.epochs_unsaved = False
        self.is_syncing = False
        """Whether a thread syncs the files: then nothing may be taken back, or it would vouch for what is gone."""
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

    def roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the end of the log, unless the last one is new."""
        old = self.segments[-1]
        if not old.size:
            return old
        fresh = Segment(self.disk, self.folder, self.end_offset)
        fresh.created_ms = now_ms
        self._unsynced.append(old)
        self._closed_bytes += old.size
        self.segments.append(fresh)
        self._active = fresh
        self._bases.append(fresh.base_offset)
        seed = zlib.crc32(f"{self.folder}/{fresh.base_offset}".encode())
        self._jitter_ms = seed % (min(self.settings.segment_jitter_ms, self.settings.segment_ms) + 1)
        self.snapshot_producers()
        if self.settings.storage is Storage.MEMORY:
            self._shed()
        return fresh

    def _shed(self) -> None:
        """A memory log gives up its oldest segments at once, not when retention next comes by."""
        count, kept_bytes = 0, self._closed_bytes
        while kept_bytes > self.settings.retention_bytes:
            kept_bytes -= self.segments[count].size
            count += 1
        if count:
            self.trim(self._bases[count])

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

    # -- taking away

    def trim(self, offset: int) -> None:
        """Readers see nothing before `offset` any more; whole segments before it are removed."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"{self.folder} holds offsets {self.start_offset} to {self.end_offset}, cannot be trimmed to {offset}"
            )
        count = self._wholly_before(offset)
        if offset == self.start_offset and not count:
            return
        self.start_offset = offset
        if count:
            # It cannot be read back from batches that are gone; nor, who has not ended a transaction in them.
            self.snapshot_producers(even_if_unchanged=len(self.producers.open) > 0)
        # Saved before files go: a restart must not find offsets that a reader was told are gone.
        self.save_checkpoint()
        self.drop_segments(count)
        self.epochs_unsaved |= self.epochs.cut_start(offset)

    def _wholly_before(self, offset: int) -> int:
        count = 0
        while count + 1 < len(self.segments) and self._bases[count + 1] <= offset:
            count += 1
        return count

    def drop_segments(self, count: int) -> None:
        """Remove the oldest `count` segments, never the last."""
        gone, self.segments = self.segments[:count], self.segments[count:]
        self._bases = self._bases[count:]
        for segment in gone:
            self._closed_bytes -= segment.size
            segment.remove()
        if gone:
            self._forget_unsynced()
            self._snapshots.prune(self._bases)

    def drop_finished(self, bases: Collection[int]) -> int:
        """Remove closed segments that nobody needs: a gap is left, as by compaction. Bytes that were freed.

        Not the first one, where the log begins. Nor what ends a transaction that began in a segment before: what was
        aborted there would come to life.
        """
        gone = [
            segment
            for segment in self.segments[1:-1]
            if segment.base_offset in bases
            and all(entry.first_offset >= segment.base_offset for entry in segment.aborted.ended_from(0))
        ]
        if not gone:
            return 0
        self.expect_holes()
        # What the producers have written cannot be read back from batches that are gone.
        self._snapshots.save(self.end_offset, self.producers.freeze(), durable=True)
        freed_bytes = sum(segment.size for segment in gone)
        self.segments = [segment for segment in self.segments if segment not in gone]
        self._bases = [segment.base_offset for segment in self.segments]
        self._closed_bytes -= freed_bytes
        for segment in gone:
            segment.remove()
        self._forget_unsynced()
        return freed_bytes

    def truncate(self, offset: int, now_ms: int) -> None:
        """Take back everything from `offset` on: what a follower does with what its leader never had.

        A batch that holds `offset` goes whole. Not while `is_syncing`. StorageError: nothing has changed; TornLog: it
        must not be used any more.
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
        self._snapshot_changes = 0
        self._snapshot_at_bytes = self.size_bytes

    def restart(self, offset: int, now_ms: int) -> None:
        """Give up everything, and go on empty at an offset behind the end: what a follower does that is too late."""
        self.truncate(self.segments[0].base_offset, now_ms)
        self.expect_holes()
        old = self.segments[0]
        if old.base_offset != offset:
            fresh = Segment(self.disk, self.folder, offset)
            fresh.created_ms = now_ms
            self.segments, self._bases, self._active = [fresh], [offset], fresh
            old.remove()
        self.producers = Producers(self.settings.max_producer_ids)
        self.start_offset = self.end_offset = offset
        self.epochs_unsaved |= self.epochs.cut_end(0)
        self.save_checkpoint()

    def _lower_marks(self, offset: int) -> None:
        """The log ends at `offset` now. Saved before files are cut: no mark may vouch for what is gone."""
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.decided_to = min(self.decided_to, offset)
        self.checkpoint = replace(self.checkpoint, start_offset=self.start_offset).cut_to(offset)
        self.marks.save(self.checkpoint)
        self.marks.save_synced(self.checkpoint)

    def expect_holes(self) -> None:
        """Compaction is about to leave gaps: what has them must be vouched for, or they would look like damage."""
        is_news = not self.checkpoint.has_holes
        if is_news:  # first: whoever finds the checkpoint say so takes it that this is there
            self.disk.store(f"{self.folder}/{HOLES_FILE}", b"", durable=True)
        self.checkpoint = replace(self.checkpoint, has_holes=True)
        self.save_checkpoint()
        if self.checkpoint_is_stale:
            raise StorageError(f"{self.folder}: the disk is too full to vouch for what is compacted")
        if is_news:
            self.marks.save_synced(self.checkpoint)

    def renew_snapshots(self, before: int) -> None:
        """Compaction goes up to an offset: what it leaves behind an older snapshot does not lead to the state now.

        A transaction that was open then would stay so if its marker is gone. For good, as the compaction is.
        """
        if self._snapshots.has_before(before):
            if self._snapshots.save(self.end_offset, self.producers.freeze(), durable=True):
                self._snapshot_changes = self.producers.changes
            self._snapshots.remove_before(before)

    def replace_segments(self, first: int, count: int, fresh: list[Segment], clean_to: int) -> None:
        """Compaction is done: `fresh` stands where `count` segments from number `first` on stood."""
        old = self.segments[first : first + count]
        self.segments[first : first + count] = fresh
        self._bases = [segment.base_offset for segment in self.segments]
        self._closed_bytes += sum(segment.size for segment in fresh) - sum(segment.size for segment in old)
        self._forget_unsynced()
        self.checkpoint = replace(self.checkpoint, clean_to=clean_to)
        self.save_checkpoint()

    # -- keeping

    def save_checkpoint(self) -> None:
        """Note how far the log may be trusted if the process is killed."""
        grown = self.size_bytes - self._snapshot_at_bytes
        if not 0 <= grown < SNAPSHOT_BYTES:
            self.snapshot_producers()
        mark = replace(self.checkpoint, start_offset=self.start_offset)
        if self._save_epochs():
            mark = replace(mark, written_to=self.end_offset)
        self.marks.save(mark)
        self.checkpoint = mark

    def snapshot_producers(self, even_if_unchanged: bool = False) -> None:
        """Note the producers' state, so that less of the log must be read back at the next start."""
        self._snapshot_at_bytes = self.size_bytes
        if self.producers.changes == self._snapshot_changes and not even_if_unchanged:
            return
        if self._snapshots.save(self.end_offset, self.producers.freeze()):
            self._snapshot_changes = self.producers.changes
            self._snapshots.prune(self._bases)

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
        """What to sync, on a thread; give the ticket to `end_sync` when it has run. One at a time."""
        self.is_syncing = True
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
        )

    def end_sync(self, ticket: SyncTicket) -> None:
        """A ticket has run: what it covers survives power loss."""
        self.is_syncing = False
        self.checkpoint = replace(self.checkpoint, synced_to=min(ticket.end_offset, self.end_offset))
        self.decided_to = min(ticket.decided_to, self.end_offset)

    def sync(self) -> None:
        """Sync now, and wait for it."""
        ticket = self.begin_sync()
        ticket.run()
        self.end_sync(ticket)

    def close(self) -> None:
        """Sync, note that all of it may be trusted, and let go of the files."""
        self.snapshot_producers()
        if self._unsynced or self.checkpoint.synced_to != self.end_offset:
            self.sync()
        for segment in self.segments:
            with suppress(StorageError):  # a full disk: what is missing in an index is found in its segment
                segment.index.seal()
        self.save_checkpoint()
        for segment in self.segments:
            segment.close()

    def abandon(self) -> None:
        """Let go of the files without a word: the log is about to be removed."""
        for segment in self.segments:
            segment.close()

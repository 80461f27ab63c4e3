"""Log recovery: opens a log, trusts it up to the recovery point, checks every batch after it, truncates a torn tail.

Damage below the recovery point is never truncated: DamagedLog takes the partition offline and reports the offset.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from penstock.foundation.errors import CorruptMessage, StorageError
from penstock.foundation.settings import LONG_MAX
from penstock.log.checkpoint import (
    FAILED_SYNC_FILE,
    FILE_NAME,
    HOLES_FILE,
    Checkpoint,
    CheckpointFile,
)
from penstock.log.compaction import CLEANED, MANIFEST, finish_swap
from penstock.log.disk import CUT, Disk
from penstock.log.epochs import LeaderEpochCache
from penstock.log.files import EPOCHS_FILE
from penstock.log.log import Log
from penstock.log.producers import Producers
from penstock.log.segment import Segment, segment_name
from penstock.log.settings import LogSettings
from penstock.log.snapshots import Snapshots
from penstock.records.batch import BatchHeader, check_batch, read_header
from penstock.records.errors import UnsupportedMessageFormat
from penstock.records.layout import HEADER_BYTES

REWRITE_BYTES: Final = 1 << 20


class DamagedLog(StorageError):
    """The log lacks batches below the recovery point, or has them out of order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """An opened log, and how many bytes recovery checked and truncated."""

    log: Log
    checked_bytes: int
    cut_bytes: int


def open_log(
    disk: Disk, folder: str, settings: LogSettings, *, boot_id: str, now_ms: int, first_offset: int = 0
) -> Recovered:
    """Opens or creates the log in a folder. `first_offset`: start offset of a new log. Waits for the disk."""
    names = _tidy(disk, folder)
    bases = [int(stem) for name in names if (stem := name.removesuffix(".log")) != name and stem.isdecimal()]
    checkpoint_file = CheckpointFile(disk, folder)
    checkpoint = found = checkpoint_file.load(boot_id, has_failed=FAILED_SYNC_FILE in names)
    lost_nothing = checkpoint is not None and checkpoint.boot_id == boot_id
    is_marked = HOLES_FILE in names
    has_holes = checkpoint is None and is_marked  # there are gaps, but where is unknown
    if checkpoint is None:
        checkpoint = Checkpoint(start_offset=first_offset, boot_id=boot_id)
    may_skip = is_marked or checkpoint.has_holes
    trusted, limit = checkpoint.trusted_to(boot_id), settings.max_producer_ids
    if not bases and trusted > checkpoint.start_offset:
        raise DamagedLog(f"{folder} has no segments; offsets {checkpoint.start_offset} to {trusted} are missing")
    first_offset = max(first_offset, checkpoint.start_offset)
    if names in ([], [FILE_NAME]):
        checkpoint = replace(checkpoint, boot_id=boot_id)
        return _new_log(disk, folder, settings, checkpoint_file, checkpoint, first_offset, now_ms)
    bases = bases or [first_offset]
    segments = [Segment(disk, folder, base, has_index=f"{segment_name(base)}.index" in names) for base in bases]
    with ExitStack() as opened:
        for segment in segments:
            opened.callback(segment.close)  # on error
            segment.created_ms = now_ms
        if checkpoint.boot_id != boot_id:
            _repair_after_power_loss(segments, checkpoint.start_offset, trusted, settings.index_interval_bytes)
        elif checkpoint.start_offset < segments[0].base_offset and trusted > checkpoint.start_offset:
            raise DamagedLog(f"{folder} starts at {segments[0].base_offset} instead of {checkpoint.start_offset}")
        _drop_empty(segments)
        if not settings.compacted and not checkpoint.has_holes:
            _check_chain(folder, segments, trusted)
        reader = _TailReader(
            disk, folder, segments, settings, checkpoint.start_offset, may_skip=may_skip, has_holes=has_holes
        )
        end_offset = reader.read_from(trusted)
        if end_offset < trusted:
            raise DamagedLog(f"{folder} ends at offset {end_offset}; its checkpoint covers all below {trusted}")
        # A killed process has listed every abort; power loss may have lost entries that were not fsynced.
        aborted_known_to = min(_measure_aborted(names, segments), end_offset if lost_nothing else trusted)
        start_offset = min(checkpoint.start_offset, end_offset)
        checkpoint = replace(checkpoint.cut_to(end_offset), boot_id=boot_id, start_offset=start_offset)
        log = Log(
            disk=disk,
            folder=folder,
            settings=settings,
            segments=segments,
            producers=Snapshots(disk, folder).restore(segments, end_offset, now_ms, aborted_known_to, limit),
            epochs=reader.epochs,
            checkpoint_file=checkpoint_file,
            checkpoint=checkpoint,
            end_offset=end_offset,
        )
        log.epochs_unsaved = reader.epochs_changed
        _repair_after_failed_sync(log, names, trusted)
        _write_checkpoint(log, found)
        if has_holes:
            log.sync()  # write a new synced checkpoint
        opened.pop_all()
        return Recovered(log=log, checked_bytes=reader.checked_bytes, cut_bytes=reader.cut_bytes)


def _repair_after_failed_sync(log: Log, names: list[str], trusted: int) -> None:
    """Rewrites the tail of the log from the offset `trusted` on and fsyncs it, if an fsync of the log failed.
    Pages that an fsync failed to write count as clean in the page cache: no later fsync would write them."""
    if FAILED_SYNC_FILE not in names:
        return
    for segment in log.segments_from(trusted):
        position = 0 if segment.base_offset >= trusted else _end_of(segment, trusted)
        while position < segment.size:
            data = bytes(segment.file.read(position, min(REWRITE_BYTES, segment.size - position)))
            segment.file.write_at(position, data)
            position += len(data)
    log.sync()
    log.disk.remove(f"{log.folder}/{FAILED_SYNC_FILE}")


def _end_of(segment: Segment, offset: int) -> int:
    """Returns the file position of the first batch at or after an offset; the segment's size if there is none."""
    found = segment.locate(offset)
    return segment.size if found is None else found.position


def _write_checkpoint(log: Log, found: Checkpoint | None) -> None:
    """Writes the checkpoint of a log just opened, if it differs from `found`, the one on the disk. Fsyncs the log
    if a truncation was interrupted. Closes the index files until their next use."""
    if found is None:
        log.checkpoint_file.reserve()
    if log.checkpoint != found or log.epochs_unsaved:
        log.save_checkpoint()
    if found is not None and found.is_truncating:
        log.sync()  # power loss must not bring back truncated batches
    for segment in log.segments:
        segment.index.release()


def _new_log(
    disk: Disk,
    folder: str,
    settings: LogSettings,
    checkpoint_file: CheckpointFile,
    checkpoint: Checkpoint,
    first_offset: int,
    now_ms: int,
) -> Recovered:
    """Creates an empty log."""
    segment = Segment(disk, folder, first_offset, has_index=False)
    segment.created_ms = now_ms
    log = Log(
        disk=disk,
        folder=folder,
        settings=settings,
        segments=[segment],
        producers=Producers(settings.max_producer_ids),
        epochs=LeaderEpochCache(),
        checkpoint_file=checkpoint_file,
        checkpoint=replace(checkpoint.cut_to(first_offset), start_offset=min(checkpoint.start_offset, first_offset)),
        end_offset=first_offset,
    )
    checkpoint_file.reserve()
    return Recovered(log=log, checked_bytes=0, cut_bytes=0)


def _measure_aborted(names: list[str], segments: list[Segment]) -> int:
    """Sets each segment's `aborted.count` from its file of aborted transactions. Returns the offset from which
    damaged files may lack entries; LONG_MAX if no file is damaged. `names`: the files in the log folder."""
    there = {name.removesuffix(".aborted") for name in names if name.endswith(".aborted")}
    listed = [segment for segment in segments if segment_name(segment.base_offset) in there]
    gaps = [segment.aborted.measure(segment.base_offset) for segment in listed]
    return min((gap for gap in gaps if gap is not None), default=LONG_MAX)


def _repair_after_power_loss(
    segments: list[Segment], start_offset: int, trusted: int, index_interval_bytes: int
) -> None:
    """Deletes segments that lie entirely below the log start offset: power loss can bring back their deleted
    files, with damaged content. Rebuilds damaged indexes from the batches below the recovery point `trusted`."""
    while len(segments) > 1 and segments[1].base_offset <= start_offset:
        segments.pop(0).remove()
    for segment in segments:
        if not segment.index.is_sane(segment.size):
            segment.rebuild_index(index_interval_bytes, trusted)


def _drop_empty(segments: list[Segment]) -> None:
    """Removes empty segments at base offsets that the log already covers: power loss can bring back such files."""
    before = segments[0]
    for segment in segments[1:]:
        if segment.size or before.end_offset <= segment.base_offset:
            before = segment
        else:
            segments.remove(segment)
            segment.remove()


def _check_chain(folder: str, segments: list[Segment], trusted: int) -> None:
    """Raises DamagedLog if a segment below the recovery point does not end where the next one begins."""
    for segment, following in pairwise(segments):
        if following.base_offset > trusted:
            return
        end = segment.end_offset
        if end != following.base_offset:
            raise DamagedLog(
                f"{folder}: segment {segment.base_offset} ends at offset {end}, the next one begins at "
                f"{following.base_offset}"
            )


def _tidy(disk: Disk, folder: str) -> list[str]:
    """Completes or undoes an interrupted compaction or truncation; returns the names of the remaining files."""
    names = disk.names(folder)
    if not names:
        disk.make_folder(folder)
        return names
    if MANIFEST in names:
        finish_swap(disk, folder)
        names = disk.names(folder)
    gone = {name for name in names if name.endswith((".new", CUT, CLEANED))}
    stems = {name.removesuffix(".log") for name in names if name.endswith(".log")}
    for name in names:
        # Leftovers of a removed segment would be taken for files of the next one with its base offset.
        stem, _, kind = name.partition(".")
        if kind in ("index", "aborted") and stem.isdecimal() and stem not in stems:
            gone.add(name)
    for name in gone:
        disk.remove(f"{folder}/{name}")
    return [name for name in names if name not in gone]


class _TailReader:
    """Checks every batch of a log from the recovery point on, and truncates the log at the first bad batch."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        segments: list[Segment],
        settings: LogSettings,
        start_offset: int,
        *,
        may_skip: bool,
        has_holes: bool,
    ) -> None:
        """`may_skip`: accepts offset gaps within a segment, since the log is marked as having gaps: it was compacted,
        here or on the leader. `has_holes`: also accepts gaps between segments."""
        self._start_offset = start_offset
        self._may_skip = may_skip
        self._has_holes = has_holes
        self._disk = disk
        self._folder = folder
        self._segments = segments
        self._settings = settings
        self.epochs_changed = False
        self.epochs = LeaderEpochCache()
        self.checked_bytes = 0
        self.cut_bytes = 0

    def _load_epochs(self, trusted: int) -> LeaderEpochCache:
        """Returns the leader epochs that start below the recovery point `trusted`: from the epoch file or, if that
        is missing or wrong, from the batches. `_check` adds the later epochs."""
        data = self._disk.load(f"{self._folder}/{EPOCHS_FILE}")
        try:
            epochs = LeaderEpochCache.load(data or b"")
            self.epochs_changed = epochs.truncate_from_end(trusted)
            if self._agree(epochs, trusted):
                return epochs
        except ValueError:
            pass  # no file yet, or damaged by power loss
        self.epochs_changed = True
        epochs = LeaderEpochCache()
        following = 0
        for segment in self._segments:
            for _, header in segment.headers():
                if not following <= header.base_offset < trusted:
                    return epochs  # beyond the recovery point: may not even be a header
                epochs.assign(header.leader_epoch, header.base_offset)
                following = header.next_offset
        return epochs

    def _agree(self, epochs: LeaderEpochCache, trusted: int) -> bool:
        """Returns whether `epochs` has the leader epochs of the first and the last batch below the recovery point
        `trusted`. The epoch file is never fsynced, so after power loss it may be outdated."""
        start = max(self._start_offset, self._segments[0].base_offset)
        if start >= trusted:
            return True
        covered = [segment for segment in self._segments if segment.base_offset < trusted]
        return all(
            epochs.at(max(start, header.base_offset)) == header.leader_epoch
            for header in (_first_from(start, covered), _first_from(trusted - 1, covered[-1:]))
            if header is not None and header.base_offset < trusted
        )

    def read_from(self, trusted: int) -> int:
        """Checks batches from the recovery point `trusted` on, truncates at a bad one; returns the log end offset."""
        self.epochs = self._load_epochs(trusted)
        segments = self._segments
        first = max((n for n, segment in enumerate(segments) if segment.base_offset <= trusted), default=0)
        end = max(trusted, segments[first].base_offset)
        for number in range(first, len(segments)):
            segment = segments[number]
            if number > first and segment.base_offset != end and not (self._has_holes and segment.base_offset > end):
                self._drop(number)
                break
            position = self._position(segment, end) if number == first else 0
            end, whole = self._check(segment, position, max(end, segment.base_offset))
            if not whole and number + 1 < len(segments):
                self._drop(number + 1)
                break
        self.epochs_changed |= self.epochs.truncate_from_end(end)
        return end

    def _position(self, segment: Segment, trusted: int) -> int:
        """Returns the file position of the recovery point `trusted`. Raises DamagedLog if no batch ends there."""
        if trusted == segment.base_offset:
            return 0
        found = segment.locate(trusted - 1)
        if found is None or found.last_offset != trusted - 1 or found.position + found.size > segment.size:
            raise DamagedLog(
                f"{self._folder} has no batch that ends right before offset {trusted}, which its checkpoint covers"
            )
        return found.position + found.size

    def _check(self, segment: Segment, position: int, expected: int) -> tuple[int, bool]:
        """Checks a segment's batches, truncates at a bad one; returns the next offset and whether all were good."""
        segment.index.cut(position)
        whole_to = position
        for at, header in segment.headers(segment.resume_index()):
            if at >= position:
                is_next = header.base_offset == expected or (self._may_skip and header.base_offset > expected)
                if not is_next or not self._is_good(segment, at, header):
                    break
                self.epochs_changed |= self.epochs.assign(header.leader_epoch, header.base_offset)
                expected = header.next_offset
                whole_to = at + header.size_bytes
            base, last = header.base_offset, header.last_offset
            segment.index_batch(
                at, header.size_bytes, base, last, header.max_timestamp, self._settings.index_interval_bytes
            )
        self.checked_bytes += whole_to - position
        if whole_to == segment.size:
            return expected, True
        self.cut_bytes += segment.size - whole_to
        segment.cut(whole_to)
        return expected, False

    def _is_good(self, segment: Segment, at: int, header: BatchHeader) -> bool:
        try:
            check_batch(segment.file.read(at, header.size_bytes), 0, header)
        except (CorruptMessage, UnsupportedMessageFormat):  # zeroes look like format v0
            return False
        return True

    def _drop(self, number: int) -> None:
        for segment in self._segments[number:]:
            self.cut_bytes += segment.size
            segment.remove()
        del self._segments[number:]
        # Durable: power loss must not bring back a segment that the log has replaced by another.
        self._disk.sync_folder(self._folder)


def _first_from(offset: int, segments: Iterable[Segment]) -> BatchHeader | None:
    """Returns the header of the first batch at or after an offset in these segments, or None if there is none."""
    for segment in segments:
        found = segment.locate(offset)
        if found is not None and found.position + HEADER_BYTES <= segment.size:
            return read_header(segment.file.read(found.position, HEADER_BYTES))
    return None

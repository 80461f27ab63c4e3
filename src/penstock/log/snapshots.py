"""Producer state snapshots on disk, and replay of the batch headers after the newest one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import StorageError
from penstock.foundation.settings import LONG_MAX
from penstock.log.disk import Disk
from penstock.log.producer_state import ProducerSnapshot
from penstock.log.producers import PRODUCER_IDS_MAX, Producers
from penstock.log.segment import Segment, segment_name
from penstock.log.transactions import AbortedTransaction
from penstock.records.build import read_marker

_SUFFIX: Final = ".producers"


class Snapshots:
    """The producer snapshot files in one log's folder; a file is named by the snapshot's offset."""

    __slots__ = ("_disk", "_folder")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def offsets(self) -> list[int]:
        names = self._disk.names(self._folder)
        stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        return [int(stem) for stem in stems if stem.isdecimal()]

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{segment_name(offset)}{_SUFFIX}"

    def save(self, offset: int, producers: ProducerSnapshot, durable: bool = False) -> bool:
        """Writes the snapshot file for `offset` (`durable`: with fsync). Returns False on an error (disk full)."""
        try:
            self._disk.store(self._path(offset), producers.encode(), durable)
        except StorageError:
            return False
        return True

    def prune(self, kept: Iterable[int]) -> None:
        """Removes all snapshots but the newest and those at the given offsets (base offsets of segments)."""
        wanted = set(kept)
        for offset in self.offsets()[:-1]:
            if offset not in wanted:
                self._disk.remove(self._path(offset))

    def has_before(self, offset: int) -> bool:
        return any(known < offset for known in self.offsets())

    def remove_before(self, offset: int) -> None:
        for known in self.offsets():
            if known < offset:
                self._disk.remove(self._path(known))

    def restore(
        self,
        segments: Sequence[Segment],
        end_offset: int,
        now_ms: int,
        aborted_known_to: int = LONG_MAX,
        limit: int = PRODUCER_IDS_MAX,
    ) -> Producers:
        """Returns the state of at most `limit` producers at `end_offset`. Deletes damaged snapshots, and those after
        `end_offset`. Rebuilds the segments' lists of aborted transactions from `aborted_known_to` on, the offset from
        which on abort markers may be missing in them."""
        start, producers = self._newest(segments, end_offset, limit, remove=True)
        aborted = _replay(segments, producers, start, now_ms)
        known_to = min(aborted_known_to, end_offset)
        if start > known_to:
            # The snapshot is newer than the missing entries: replay from an older one.
            start, older = self._newest(segments, known_to, limit, remove=False)
            aborted = _replay(segments, older, start, now_ms)
        markers = [entry.last_offset for entry in aborted]
        for segment, end in zip(
            segments, [*(segment.base_offset for segment in segments[1:]), LONG_MAX], strict=True
        ):
            if end > known_to:
                first = bisect_left(markers, max(known_to, segment.base_offset))
                segment.aborted.replace_from(known_to, aborted[first : bisect_left(markers, end)])
        return producers

    def ensure(self, offset: int, bases: Sequence[int], now_ms: int, limit: int) -> bool:
        """Writes a durable snapshot at `offset`, even if one exists; returns False on a full disk. `limit`:
        maximum number of producers. Runs on a thread, so it opens its own Segments, with the base offsets `bases`."""
        known = max((known for known in self.offsets() if known <= offset), default=0)
        first = max(0, bisect_right(bases, known) - 1)
        segments = [Segment(self._disk, self._folder, base) for base in bases[first:]]
        try:
            start, producers = self._newest(segments, offset, limit, remove=False)
            _replay(segments, producers, start, now_ms)
        finally:
            for segment in segments:
                segment.close()
        return self.save(offset, producers.take_snapshot(), durable=True)

    def _newest(
        self, segments: Sequence[Segment], end_offset: int, limit: int, remove: bool
    ) -> tuple[int, Producers]:
        """Returns the offset to replay the log from, and the newest intact snapshot at or before `end_offset`;
        without one, an empty state. `limit`: maximum number of producers that the returned state keeps during the
        replay. `remove`: whether to delete damaged snapshots and snapshots after `end_offset`."""
        start = segments[0].base_offset
        producers = None
        removed = False
        for offset in reversed(self.offsets()):
            data = self._disk.load(self._path(offset)) if offset <= end_offset else None
            producers = Producers.restore(data, limit) if data else None
            if producers is not None:
                if offset < start:
                    producers.forget_transactions()  # their markers may have been in between
                start = max(start, offset)
                break
            if remove:
                self._disk.remove(self._path(offset))
                removed = True
        if removed:
            # Durable: power loss must not bring back the state of truncated batches.
            self._disk.sync_folder(self._folder)
        return start, producers or Producers(limit)


def _replay(segments: Sequence[Segment], producers: Producers, start: int, now_ms: int) -> list[AbortedTransaction]:
    """Applies all batches from the offset `start` on to `producers`; returns the transactions that they abort."""
    aborted = []
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= start:
            continue
        found = segment.locate(start)
        for position, header in segment.headers(found.position) if found else ():
            if header.producer_id < 0:
                continue
            if not header.is_control:
                producers.apply(header, header.base_offset, header.max_timestamp, now_ms)
                continue
            marker = read_marker(segment.file.read(position, header.size_bytes))
            entry = producers.aborted_by(header.producer_id, marker, header.base_offset) if marker else None
            if entry is not None:
                aborted.append(entry)
            producers.end(ProducerKey(header.producer_id, header.producer_epoch), marker, header.base_offset, now_ms)
    return aborted

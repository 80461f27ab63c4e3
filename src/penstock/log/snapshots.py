"""Producer state on disk: a snapshot now and then, and the batches' headers for the rest."""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.foundation.errors import StorageError
from penstock.log.disk import Disk
from penstock.log.producers import Producers
from penstock.log.segment import Segment, segment_name

_SUFFIX: Final = ".producers"


class Snapshots:
    """The snapshots in one log's folder, named by the offset at which they were taken."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def offsets(self) -> list[int]:
        names = self._disk.names(self._folder)
        stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        return [int(stem) for stem in stems if stem.isdecimal()]

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{segment_name(offset)}{_SUFFIX}"

    def save(self, offset: int, producers: Producers) -> bool:
        """False on a disk that is full: that costs a longer replay later, nothing else."""
        try:
            self._disk.store(self._path(offset), producers.snapshot())
        except StorageError:
            return False
        return True

    def prune(self, kept: Iterable[int]) -> None:
        """Keep the newest snapshot, and those at the given offsets (the segments' starts)."""
        wanted = set(kept)
        for offset in self.offsets()[:-1]:
            if offset not in wanted:
                self._disk.remove(self._path(offset))

    def restore(self, segments: Sequence[Segment], end_offset: int, now_ms: int) -> Producers:
        """The state at `end_offset`. Snapshots that are damaged or lie after it are removed."""
        start = segments[0].base_offset
        producers = None
        removed = False
        for offset in reversed(self.offsets()):
            data = self._disk.load(self._path(offset))
            producers = Producers.restore(data) if data and offset <= end_offset else None
            if producers is not None:
                start = max(start, offset)
                break
            self._disk.remove(self._path(offset))
            removed = True
        if removed:
            # For good: power loss must not bring back what was true of batches that have been cut off.
            self._disk.sync_folder(self._folder)
        producers = producers or Producers()
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is not None and following.base_offset <= start:
                continue
            place = segment.locate(start)
            for _, header in segment.headers(place.position) if place else ():
                if header.producer_id >= 0:
                    producers.apply(header, header.base_offset, header.max_timestamp, now_ms)
        return producers

"""What a perfect log would hold: every batch that was acknowledged, and what became of the transactions."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.records.build import Marker, Record

NO_PRODUCER = -1


@dataclass(frozen=True, kw_only=True)
class Written:
    """One batch: its records, and its producer."""

    base: int = -1
    records: list[Record]
    producer_id: int = NO_PRODUCER
    epoch: int = -1
    is_transactional: bool = False
    marker: Marker | None = None

    @property
    def end(self) -> int:
        return self.base + len(self.records)


@dataclass(frozen=True)
class Transaction:
    producer_id: int
    first: int
    last: int
    """Of its marker."""
    committed: bool
    bases: tuple[int, ...] = ()
    """Of its batches."""


@dataclass
class ModelProducer:
    epoch: int = 0
    next_sequence: int = 0
    sent: deque[tuple[int, int, bytes]] = field(default_factory=lambda: deque(maxlen=5))  # sequence, offset, batch


class Model:
    """Rebuilt from the batches that are left when some are lost."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.synced_end = 0
        self.start = 0
        self.producers: dict[int, ModelProducer] = {}
        self.expired: dict[int, int] = {}
        """Up to which offset the log may have forgotten, or not, what a producer wrote."""
        self._lost: set[int] = set()
        self._lost_markers: set[int] = set()
        self._forget()

    def _forget(self) -> None:
        self.records: dict[int, Record] = {}
        self.ends = {0}
        self.end = 0
        self.markers: set[int] = set()
        self.aborted: set[int] = set()
        """Offsets of records that do not count."""
        self.open: dict[int, int] = {}
        self.ended: list[Transaction] = []
        self.parts: dict[int, list[Written]] = {}
        """Batches of open transactions."""

    def add(self, batch: Written) -> None:
        self.written.append(batch)
        for row, record in enumerate(batch.records):
            self.records[batch.base + row] = record
        self.end = batch.end
        self.ends.add(batch.end)
        if batch.marker is not None:
            self.markers.add(batch.base)
            if batch.base not in self._lost_markers:
                self._finish(batch.producer_id, batch.base, batch.marker.committed)
        elif batch.is_transactional and batch.base not in self._lost:
            self.open.setdefault(batch.producer_id, batch.base)
            self.parts.setdefault(batch.producer_id, []).append(batch)

    def _finish(self, producer_id: int, offset: int, committed: bool) -> None:
        batches = self.parts.pop(producer_id, [])
        first = self.open.pop(producer_id, None)
        if first is None:
            return
        bases = tuple(batch.base for batch in batches)
        self.ended.append(Transaction(producer_id, first, offset, committed, bases))
        if not committed:
            self.aborted.update(offset for batch in batches for offset in range(batch.base, batch.end))

    def lose_beginning(self, producer_id: int, found: int) -> None:
        """A producer's open transaction begins at `found` now, or (-1) is not known any more."""
        parts = self.parts.pop(producer_id)
        kept = [batch for batch in parts if 0 <= found <= batch.base]
        self._lost.update(batch.base for batch in parts if batch not in kept)
        del self.open[producer_id]
        if kept:
            self.parts[producer_id] = kept
            self.open[producer_id] = found

    def lose_markers(self, bases: Iterable[int]) -> None:
        """These are not known any more: what they ended is part of what came after it."""
        self._lost_markers.update(bases)
        self.cut(self.end)

    def cut(self, end: int) -> None:
        """What came later is lost."""
        kept = [batch for batch in self.written if batch.end <= end]
        self.written = []
        self._forget()
        for batch in kept:
            self.add(batch)
        self.synced_end = min(self.synced_end, end)
        self.start = min(self.start, end)

    def stable(self, high_watermark: int, start: int) -> range:
        """What the last stable offset may be. What a transaction wrote before the log's start holds back no one: if
        the log is read back after that, its beginning is not known any more."""
        undecided = [transaction for transaction in self.ended if transaction.last >= high_watermark]
        known = [*(transaction.first for transaction in undecided), *self.open.values()]
        left = [
            *(base for transaction in undecided for base in transaction.bases if base >= start),
            *self.open.values(),
        ]
        first, last = (min(high_watermark, max(start, min(found, default=high_watermark))) for found in (known, left))
        return range(first, last + 1)

    def counting(self, first: int, end: int) -> set[int]:
        """Offsets of records that a reader of committed records gets to see between two stable offsets."""
        return {*range(first, end)}.intersection(self.records).difference(self.aborted, self.markers)

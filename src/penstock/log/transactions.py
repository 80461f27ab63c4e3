"""Which transactions are open in a log, which were aborted, and from where on nothing is decided. Pure."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.records.build import Marker


class AbortedTransaction(NamedTuple):
    """What a producer wrote between two offsets does not count."""

    producer_id: int
    first_offset: int
    """Of its first record."""
    last_offset: int
    """Of the marker that aborted it."""
    last_stable_offset: int
    """Everything below was decided then: no transaction that is aborted later begins before it."""


class OpenTransactions:
    """First offsets of the transactions that are open, and of those that have ended only just.

    A transaction whose marker may yet be lost is not decided, though it has ended: it holds back readers until
    the high watermark has passed its marker.
    """

    __slots__ = ("_ended", "_first")

    def __init__(self) -> None:
        # Both are made when they are needed: most logs have no transactions.
        self._first: OrderedDict[int, None] | tuple[()] = ()  # in the order in which they were begun, which is theirs
        self._ended: deque[tuple[int, int]] | tuple[()] = ()  # first offset and marker, both rising

    def __len__(self) -> int:
        return len(self._first)

    @property
    def ended(self) -> list[tuple[int, int]]:
        """First offsets and markers of those that have ended, and may not be decided yet."""
        return list(self._ended)

    @property
    def are_decided(self) -> bool:
        """Whether there is nothing that could hold back readers, wherever the high watermark is."""
        return not self._first and not self._ended

    def begin(self, first: int) -> None:
        """A transaction begins at an offset behind all that were begun before."""
        if isinstance(self._first, tuple):
            self._first = OrderedDict()
        self._first[first] = None

    def end(self, first: int, last: int) -> None:
        """The one that began at `first` has its marker at `last`, behind all other markers."""
        assert not isinstance(self._first, tuple)
        del self._first[first]
        if isinstance(self._ended, tuple):
            self._ended = deque()
        # Whatever began later and ended earlier is decided no later than this one, and holds back no one.
        while self._ended and self._ended[-1][0] >= first:
            self._ended.pop()
        self._ended.append((first, last))

    @property
    def first_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self._first), None)

    def first_but(self, first: int) -> int | None:
        """Where the oldest one begins, not counting the one that begins at `first`."""
        return next((offset for offset in self._first if offset != first), None)

    def first_undecided(self, high_watermark: int) -> int | None:
        """Where the oldest one begins that is open, or whose marker is not below the high watermark."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            assert isinstance(ended, deque)
            ended.popleft()
        first = self.first_offset
        if ended and (first is None or ended[0][0] < first):
            return ended[0][0]
        return first


class Cleaning:
    """Follows the transactions of a log that is read batch by batch, as compaction does.

    Tells which batches were aborted, and which markers are still needed: those of transactions of which a batch is
    left. What was aborted is announced by `expect`, no later than its first batch comes along.
    """

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """These may come along from now on; one that was expected already does no harm."""
        for transaction in aborted:
            heappush(self._coming, (transaction.first_offset, transaction))

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records was aborted."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, marker: Marker) -> tuple[bool, AbortedTransaction | None]:
        """Whether a marker is needed, and the transaction it aborts if that has batches left."""
        self._reach(header.last_offset)
        has_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker.committed:
            return has_batches, None
        aborted = self._aborted.pop(header.producer_id, None)
        return has_batches, aborted if has_batches else None

"""Open and aborted transactions of a log, and the first unstable offset. Pure."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

from penstock.records.batch import BatchHeader
from penstock.records.build import Marker


class AbortedTransaction(NamedTuple):
    """An aborted transaction: consumers skip the producer's records from `first_offset` to `last_offset`."""

    producer_id: int
    first_offset: int
    """Offset of the transaction's first record."""
    last_offset: int
    """Offset of the transaction's abort marker."""
    last_stable_offset: int
    """The last stable offset at the time of the abort: transactions aborted later begin at or after it."""


class OpenTransactions:
    """First offsets of open transactions, and of ended transactions whose markers are possibly not committed yet.
    An ended transaction holds back the last stable offset until the high watermark has passed its marker."""

    __slots__ = ("_ended", "_first")

    def __init__(self) -> None:
        # Both are created on demand: most logs have no transactions.
        self._first: OrderedDict[int, None] | tuple[()] = ()  # in order of first offset
        self._ended: deque[tuple[int, int]] | tuple[()] = ()  # first offset and marker offset, both increasing

    def __len__(self) -> int:
        return len(self._first)

    @property
    def ended(self) -> list[tuple[int, int]]:
        """First offset and marker offset of each ended transaction whose marker is possibly not committed yet."""
        return list(self._ended)

    @property
    def is_empty(self) -> bool:
        """Whether no transaction holds back the last stable offset, at any high watermark."""
        return not self._first and not self._ended

    def begin(self, first: int) -> None:
        """Opens a transaction at offset `first`, which must be higher than that of all earlier transactions."""
        if isinstance(self._first, tuple):
            self._first = OrderedDict()
        self._first[first] = None

    def end(self, first: int, last: int) -> None:
        """Ends the transaction that began at `first`; its marker is at `last`, after all earlier markers."""
        assert not isinstance(self._first, tuple)
        del self._first[first]
        if isinstance(self._ended, tuple):
            self._ended = deque()
        # One that began later and ended earlier never holds back the last stable offset.
        while self._ended and self._ended[-1][0] >= first:
            self._ended.pop()
        self._ended.append((first, last))

    @property
    def first_offset(self) -> int | None:
        """The first offset of the oldest open transaction, or None if no transaction is open."""
        return next(iter(self._first), None)

    def first_except(self, first: int) -> int | None:
        """Returns the first offset of the oldest open transaction other than that at `first`, or None."""
        return next((offset for offset in self._first if offset != first), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Returns the first offset of the oldest transaction without a marker below the high watermark, or None."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            assert isinstance(ended, deque)
            ended.popleft()
        first = self.first_offset
        if ended and (first is None or ended[0][0] < first):
            return ended[0][0]
        return first


class CleanedTransactions:
    """Tracks the transactions of a log while compaction reads it (Kafka: CleanedTransactionMetadata).

    Decides which batches are aborted, and which markers are still needed: those of transactions that have batches
    left. `add_aborted` must register an aborted transaction before its first batch is read.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()

    def add_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Registers aborted transactions before their batches are read; repeating a transaction is harmless."""
        for transaction in aborted:
            heappush(self._pending, (transaction.first_offset, transaction))

    def _advance_to(self, offset: int) -> None:
        while self._pending and self._pending[0][0] <= offset:
            _, transaction = heappop(self._pending)
            self._aborted.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Returns whether a batch belongs to an aborted transaction."""
        self._advance_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, marker: Marker) -> tuple[bool, AbortedTransaction | None]:
        """Returns whether to keep a transaction marker, and the transaction that it aborts. The latter is None for a
        commit marker, and if the transaction has no batch left in the log."""
        self._advance_to(header.last_offset)
        has_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker.committed:
            return has_batches, None
        aborted = self._aborted.pop(header.producer_id, None)
        return has_batches, aborted if has_batches else None

"""Producer state of a partition: sequence checks, the last five batches of each producer, open transactions. Pure.

A duplicate batch is answered with the offsets of its first append; a batch that leaves a sequence gap is rejected.
The state at any offset is the last snapshot before the offset plus the batch headers and markers since.
"""

from collections.abc import Callable
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    PenstockError,
    StorageError,
    TransactionCoordinatorFenced,
)
from penstock.foundation.steps import Steps
from penstock.log.producer_state import BATCH, NO_OFFSET, NO_SEQUENCE, SEQUENCE_SPAN, WINDOW_BYTES, ProducerSnapshot
from penstock.log.producer_state import Producer as Producer
from penstock.log.producer_state import SentBatch as SentBatch
from penstock.log.producer_state import sequence_after as sequence_after
from penstock.log.transactions import AbortedTransaction, OpenTransactions
from penstock.records.batch import BatchHeader
from penstock.records.build import Marker
from penstock.records.layout import LOG_APPEND_TIME, TRANSACTIONAL

REFUSED_MAX: Final = 1000
PRODUCER_IDS_MAX: Final = 10_000
"""Maximum number of producer ids per partition, unless the topic sets max.producer.ids."""
EVICTION_SCAN: Final = 2048
"""Number of producers that one eviction scans: bounds the time that it takes."""
EVICTION_SHIFT: Final = 4
"""An eviction removes one in 2^EVICTION_SHIFT of the scanned producers without open transactions: those idle
longest."""
EXPIRED_MAX: Final = 10_000
"""Maximum number of producers that one call of `expire` removes; later calls remove the others."""
SHIFTED_AT_ONCE: Final = 1000
"""Number of producers after which `shift_clock` yields."""
BUMPED: Final = 2
"""Lowest transaction version in which every transaction marker has a new producer epoch (KIP-890)."""

UNKNOWN_MS: Final = -1
"""Timestamp recorded for a batch from which compaction removed records: its latest timestamp is unknown."""

_pack: Final = BATCH.pack
_new = tuple.__new__  # half the time of NamedTuple's own constructor


class Refused(NamedTuple):
    """A producer's earliest rejected batch that is not retried yet: its base sequence, and the type of the error."""

    sequence: int
    kind: type[PenstockError]


class Producers:
    """The state of all producers of one partition."""

    __slots__ = ("_candidates", "_refused", "by_id", "changes", "limit", "open")

    def __init__(self, limit: int = PRODUCER_IDS_MAX) -> None:
        self.by_id: dict[int, Producer] = {}
        self.limit = limit
        """Maximum number of producers; above it, the producers idle longest are evicted, as if they had expired."""
        self._candidates: list[int] | tuple[()] = ()
        """Ids of the producers that the next evictions scan, starting at the end of the list."""
        self.open = OpenTransactions()
        self._refused: dict[ProducerKey, Refused] = {}
        """Rejected batches that are expected to be retried, by producer id and epoch."""
        self.changes = 0
        """Number of state changes so far: if it is the same as at the last snapshot, no new snapshot is needed."""

    # -- validation

    def check(self, header: BatchHeader, may_begin: bool = False) -> SentBatch | None:
        """Returns None if a producer's batch may be appended; if it is a duplicate, returns the batch that it
        repeats.

        `may_begin`: the coordinator has verified that this partition is in the producer's transaction (KIP-890).
        Raises OutOfOrderSequence, InvalidProducerEpoch or InvalidTxnState as Kafka does.
        """
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            if header.attributes & TRANSACTIONAL and not may_begin:
                raise _not_begun(header)
            self._check_producer_limit()
            # Expired or new: any first sequence is accepted (KIP-360), unless an earlier one was rejected.
            if self._refused:
                self._check_refused(header, NO_SEQUENCE)
            return None
        if header.producer_epoch < producer.epoch:
            raise _fenced(header.producer_id, header.producer_epoch, producer.epoch)
        first, expected = header.base_sequence, 0
        is_new_epoch = header.producer_epoch > producer.epoch
        if not is_new_epoch and producer.window:
            expected = producer.next_sequence
            if first != expected:
                last = (first + header.last_offset_delta) % SEQUENCE_SPAN
                for sent in producer.batches:
                    if sent.first_sequence == first and sent.last_sequence == last:
                        return sent
        if header.attributes & TRANSACTIONAL:
            if not may_begin and (is_new_epoch or producer.first_offset < 0):
                raise _not_begun(header)
        elif producer.first_offset >= 0:
            raise _mixed(header)
        if first != expected:
            if self._refused:
                self._check_refused(header, expected)
            raise OutOfOrderSequence(
                f"producer {header.producer_id} began epoch {header.producer_epoch} with sequence {first}, expected 0"
                if is_new_epoch
                else f"producer {header.producer_id} sent sequence {first}, expected {expected}"
            )
        return None

    def refuse(self, header: BatchHeader, error: PenstockError) -> None:
        """Records that a batch was rejected and will be retried: the producer's later batches must not overtake it.

        Later batches get the same error. An OutOfOrderSequence error would make librdkafka reset its sequences to 0
        in a new epoch on all partitions, and batches in flight elsewhere would be appended twice.
        """
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        key = ProducerKey(header.producer_id, header.producer_epoch)
        known = self._refused.get(key)
        if known is None and len(self._refused) >= REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        # Ignore an earlier rejection whose retry was appended since.
        if known is None or header.base_sequence <= known.sequence or known.sequence < self._next_of(key):
            self._refused[key] = Refused(header.base_sequence, type(error))

    def _next_of(self, key: ProducerKey) -> int:
        """Returns the sequence expected of a producer's next batch; NO_SEQUENCE if it has no batch in this epoch."""
        producer = self.by_id.get(key.producer_id)
        if producer is None or producer.epoch != key.epoch or not producer.window:
            return NO_SEQUENCE
        return producer.next_sequence

    def _check_refused(self, header: BatchHeader, expected: int) -> None:
        """Raises the error of the producer's rejected batch if that batch must be retried before this one.
        `expected`: the producer's next sequence; a rejected batch below it was already retried."""
        key = ProducerKey(header.producer_id, header.producer_epoch)
        refused = self._refused.get(key)
        if refused is None:
            return
        if refused.sequence >= expected and header.base_sequence > refused.sequence:
            raise refused.kind(
                f"producer {header.producer_id} sent sequence {header.base_sequence}; {refused.sequence} was "
                "rejected before it, and must be retried first"
            )
        del self._refused[key]

    def check_own(self, header: BatchHeader) -> None:
        """Checks a batch without sequence that the broker built for a producer. Raises if its producer epoch is
        old, if it is not transactional but a transaction is open, or if there is no room for a new producer."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            self._check_producer_limit()
            return
        if header.producer_epoch < producer.epoch:
            raise _fenced(header.producer_id, header.producer_epoch, producer.epoch)
        if producer.first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            raise _mixed(header)

    def check_marker(self, key: ProducerKey, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Raises if a transaction marker may not be written with this producer epoch and coordinator epoch.

        From transaction version 2 a marker has a newer epoch than its transaction, so that a late marker cannot end
        the next transaction; a marker with the current epoch is accepted only if no transaction is open (KIP-890).
        """
        producer = self.by_id.get(key.producer_id)
        if producer is None:
            return
        is_late = key.epoch == producer.epoch and producer.first_offset >= 0 and transaction_version >= BUMPED
        if key.epoch < producer.epoch or is_late:
            raise _fenced(key.producer_id, key.epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the coordinator of producer {key.producer_id} has epoch {coordinator_epoch}, but one with the "
                f"newer epoch {producer.coordinator_epoch} has ended a transaction"
            )

    def _check_producer_limit(self) -> None:
        if len(self.by_id) >= self.limit and len(self.open) >= len(self.by_id):
            raise StorageError(f"the partition has {len(self.open)} open transactions, the limit; retry")

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.by_id.get(producer_id)
        return producer is not None and producer.first_offset >= 0 and producer.epoch == epoch

    def marker_offset(self, producer_id: int) -> int:
        """Returns the offset of a producer's last transaction marker; it changes when a transaction ends."""
        producer = self.by_id.get(producer_id)
        return NO_OFFSET if producer is None else producer.marker_offset

    # -- updates

    def apply(self, header: tuple[int, ...], base_offset: int, timestamp_ms: int, now_ms: int) -> None:
        """Updates the state with a batch that was appended, or is replayed. `header`: fields of a BatchHeader."""
        _, _, _, _, _, attributes, last_offset_delta, _, _, producer_id, epoch, first, count = header
        producer = self.by_id.get(producer_id)
        if producer is None or producer[0] != epoch:
            producer = self._enter_epoch(producer, epoch)
        _, _, window, _, first_offset, coordinator_epoch, marker_offset = producer
        self.changes += 1
        last = (first + last_offset_delta) % SEQUENCE_SPAN if first >= 0 else first
        if count <= last_offset_delta and not attributes & LOG_APPEND_TIME:
            timestamp_ms = UNKNOWN_MS
        if len(window) >= WINDOW_BYTES:
            window = window[BATCH.size :]
        window += _pack(first, last, base_offset, base_offset + last_offset_delta, timestamp_ms)
        if attributes & TRANSACTIONAL and first_offset < 0:
            first_offset = base_offset
            self.open.begin(base_offset)
        following = (last + 1) % SEQUENCE_SPAN
        self.by_id[producer_id] = _new(
            Producer, (epoch, now_ms, window, following, first_offset, coordinator_epoch, marker_offset)
        )

    def _enter_epoch(self, producer: Producer | None, epoch: int) -> Producer:
        """Returns the producer's state at the start of `epoch`. `producer`: its earlier state, or None if new."""
        if producer is not None:
            return producer._replace(epoch=epoch, window=b"", next_sequence=0)
        if len(self.by_id) >= self.limit:
            self._evict()
        return Producer(epoch)

    def aborted_by(self, producer_id: int, marker: Marker, offset: int) -> AbortedTransaction | None:
        """Returns the transaction that a marker at `offset` aborts; None if it aborts none."""
        producer = self.by_id.get(producer_id)
        if marker.committed or producer is None or producer.first_offset < 0:
            return None
        stable = self.open.first_except(producer.first_offset)
        return AbortedTransaction(
            producer_id, producer.first_offset, offset, offset + 1 if stable is None else stable
        )

    def end(self, key: ProducerKey, marker: Marker | None, offset: int, now_ms: int) -> None:
        """Ends a producer's transaction, for a control batch that was appended or that recovery replays.

        The producer's next batch has the control batch's epoch, and starts at sequence 0 if that epoch is new. If
        `marker` is None, only the epoch is set.
        """
        producer = self.by_id.get(key.producer_id)
        if producer is None or producer.epoch != key.epoch:
            producer = self._enter_epoch(producer, key.epoch)
        self.changes += 1
        producer = producer._replace(last_seen_ms=now_ms)
        if marker is not None:
            if producer.first_offset >= 0:
                self.open.end(producer.first_offset, offset)
            producer = producer._replace(
                coordinator_epoch=marker.coordinator_epoch, marker_offset=offset, first_offset=NO_OFFSET
            )
        self.by_id[key.producer_id] = producer

    # -- expiry

    def _evict(self) -> None:
        """Evicts producers to make room for a new one: scans EVICTION_SCAN producers, from where the last scan
        stopped, and of those without an open transaction evicts one in 2^EVICTION_SHIFT (at least one), those idle
        longest. If all have open transactions, scans the next ones: the transaction of an evicted producer could
        never end."""
        by_id = self.by_id
        for _ in range(2 + len(by_id) // EVICTION_SCAN):
            if not self._candidates:
                self._candidates = list(by_id)[::-1]
            assert isinstance(self._candidates, list)
            scanned = self._candidates[-EVICTION_SCAN:]
            del self._candidates[-EVICTION_SCAN:]
            idle = [known for known in scanned if known in by_id and by_id[known].first_offset < 0]
            count = max(1, len(idle) >> EVICTION_SHIFT)
            for known in nsmallest(count, idle, key=lambda known: by_id[known].last_seen_ms):
                del by_id[known]
            if idle:
                return

    def shift_clock(self, by_ms: int, now_ms: Callable[[], int]) -> Steps[None]:
        """Adjusts all last-seen times by `by_ms` after the wall clock was set, so that idle times stay the same. A
        generator that yields regularly. Also shifts producers seen since the clock was set; at worst they expire
        later."""
        for number, known in enumerate(list(self.by_id), 1):
            producer = self.by_id.get(known)
            if producer is not None and (by_ms > 0 or producer.last_seen_ms > now_ms()):
                self.by_id[known] = producer._replace(last_seen_ms=producer.last_seen_ms + by_ms)
            if number % SHIFTED_AT_ONCE == 0:
                yield

    def expire(self, before_ms: int) -> int:
        """Expires producers last seen before `before_ms` without an open transaction, at most EXPIRED_MAX; returns
        their count."""
        idle = (
            known
            for known, producer in self.by_id.items()
            if producer.last_seen_ms < before_ms and producer.first_offset < 0
        )
        gone = list(islice(idle, EXPIRED_MAX))
        for known in gone:
            del self.by_id[known]
        self.changes += len(gone)
        return len(gone)

    def forget_transactions(self) -> None:
        """Treats all open transactions as ended, because batches that may contain their markers are gone from the
        log."""
        self.open = OpenTransactions()
        for known, producer in self.by_id.items():
            if producer.first_offset >= 0:
                self.by_id[known] = producer._replace(first_offset=NO_OFFSET)

    # -- snapshots

    def take_snapshot(self) -> ProducerSnapshot:
        """Returns an immutable copy of the state, which can be encoded later on a thread."""
        return ProducerSnapshot(self.by_id.copy(), self.open.ended)

    @classmethod
    def restore(cls, data: bytes, limit: int = PRODUCER_IDS_MAX) -> "Producers | None":
        """Decodes a snapshot; returns None if it is damaged."""
        snapshot = ProducerSnapshot.decode(data)
        if snapshot is None:
            return None
        state = cls(limit)
        state.by_id = dict(snapshot.by_id)
        for ended in snapshot.ended:
            state.open.begin(ended[0])
            state.open.end(*ended)
        for first in sorted(producer.first_offset for producer in state.by_id.values()):
            if first >= 0:
                state.open.begin(first)
        return state


def _fenced(producer_id: int, epoch: int, known: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"producer {producer_id} has epoch {epoch}, its newer instance has {known}; start it again to get a new epoch"
    )


def _not_begun(header: BatchHeader) -> InvalidTxnState:
    return InvalidTxnState(
        f"the batch of producer {header.producer_id} is not part of an ongoing transaction; "
        "add the partition to its transaction first"
    )


def _mixed(header: BatchHeader) -> InvalidTxnState:
    return InvalidTxnState(
        f"producer {header.producer_id} sent a non-transactional batch while its transaction is open; end that first"
    )

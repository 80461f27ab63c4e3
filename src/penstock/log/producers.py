"""What a partition remembers of its idempotent producers: the last five batches of each, and open transactions. Pure.

A batch that was sent again is answered with the offset it got the first time; one that leaves a gap is refused.
The state at any offset is the snapshot before it plus the headers of the batches in between, and their markers.
"""

from heapq import nsmallest
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
from penstock.log.producer_state import BATCH, NO_OFFSET, NO_SEQUENCE, SEQUENCE_SPAN, WINDOW_BYTES, FrozenProducers
from penstock.log.producer_state import Producer as Producer
from penstock.log.producer_state import SentBatch as SentBatch
from penstock.log.producer_state import sequence_after as sequence_after
from penstock.log.transactions import AbortedTransaction, OpenTransactions
from penstock.records.batch import BatchHeader
from penstock.records.build import Marker
from penstock.records.layout import LOG_APPEND_TIME, TRANSACTIONAL

REFUSED_MAX: Final = 1000
PRODUCER_IDS_MAX: Final = 10_000
"""Per partition, unless the topic's max.producer.ids says otherwise."""
EVICTION_SCAN: Final = 2048
"""Producers that are looked at when some must be evicted: a bounded step, whatever the limit."""
EVICTION_SHIFT: Final = 4
"""Of those that were looked at, one in 2^4 is evicted: the ones that were silent longest."""
BUMPED: Final = 2
"""The transaction version from which on every marker has a new epoch (KIP-890)."""

UNKNOWN_MS: Final = -1
"""The time of a batch that compaction has taken records from: the latest one may be among them."""

_pack: Final = BATCH.pack
_new = tuple.__new__  # half the time of NamedTuple's own constructor


class Refused(NamedTuple):
    """The first batch of a producer that was not taken, and why."""

    sequence: int
    kind: type[PenstockError]


class Producers:
    """All producers of one partition."""

    __slots__ = ("_candidates", "_refused", "by_id", "changes", "limit", "open")

    def __init__(self, limit: int = PRODUCER_IDS_MAX) -> None:
        self.by_id: dict[int, Producer] = {}
        self.limit = limit
        """Past so many, those that were silent longest are evicted, as if they had expired."""
        self._candidates: list[int] | tuple[()] = ()
        """Producers that are looked at next when some must be evicted, the last one first."""
        self.open = OpenTransactions()
        self._refused: dict[ProducerKey, Refused] = {}
        """Producers that will come again with a batch that was not taken."""
        self.changes = 0
        """Counts what was applied, so that an unchanged state is not written again."""

    # -- what may be appended

    def check(self, header: BatchHeader, may_begin: bool = False) -> SentBatch | None:
        """None if a client's batch may be appended; the batch it repeats if it was sent before.

        `may_begin`: the coordinator has said that this partition is in the producer's transaction (KIP-890).
        Raises OutOfOrderSequence, InvalidProducerEpoch or InvalidTxnState as Kafka does.
        """
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            if header.attributes & TRANSACTIONAL and not may_begin:
                raise _not_begun(header)
            self._check_room()
            # Forgotten or new: any sequence may begin (KIP-360), unless one before it was refused and comes again.
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
        """A batch was not taken, for now, and will be sent again: those that follow it must not be taken before.

        They are refused for the same reason. Told that their sequence is wrong, librdkafka would count from 0 again,
        in another epoch, on all partitions, and what it had under way elsewhere would be there twice.
        """
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        key = ProducerKey(header.producer_id, header.producer_epoch)
        known = self._refused.get(key)
        if known is None and len(self._refused) >= REFUSED_MAX:
            del self._refused[next(iter(self._refused))]
        # One that came again and was taken since then is no reason any more.
        if known is None or header.base_sequence <= known.sequence or known.sequence < self._next_of(key):
            self._refused[key] = Refused(header.base_sequence, type(error))

    def _next_of(self, key: ProducerKey) -> int:
        """The sequence that a producer has to send next; NO_SEQUENCE if nothing is known of it."""
        producer = self.by_id.get(key.producer_id)
        if producer is None or producer.epoch != key.epoch or not producer.window:
            return NO_SEQUENCE
        return producer.next_sequence

    def _check_refused(self, header: BatchHeader, expected: int) -> None:
        """Whether a batch is behind one that was refused. `expected`: the sequence that would be taken, if known."""
        key = ProducerKey(header.producer_id, header.producer_epoch)
        refused = self._refused.get(key)
        if refused is None:
            return
        if refused.sequence >= expected and header.base_sequence > refused.sequence:
            raise refused.kind(
                f"producer {header.producer_id} sent sequence {header.base_sequence}; {refused.sequence} was refused "
                "before it, and has to come first"
            )
        del self._refused[key]

    def check_own(self, header: BatchHeader) -> None:
        """Whether a batch may be appended that the broker made in a producer's name: it has no sequence."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            self._check_room()
            return
        if header.producer_epoch < producer.epoch:
            raise _fenced(header.producer_id, header.producer_epoch, producer.epoch)
        if producer.first_offset >= 0 and not header.attributes & TRANSACTIONAL:
            raise _mixed(header)

    def check_marker(self, key: ProducerKey, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Whether a producer's transaction may be ended by this coordinator, in this epoch.

        Since version 2 the marker has a newer epoch than the transaction, so that one that comes late or again does
        not end the transaction after it; only one that finds nothing to end may have the epoch it left (KIP-890).
        """
        producer = self.by_id.get(key.producer_id)
        if producer is None:
            return
        is_late = key.epoch == producer.epoch and producer.first_offset >= 0 and transaction_version >= BUMPED
        if key.epoch < producer.epoch or is_late:
            raise _fenced(key.producer_id, key.epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the coordinator of producer {key.producer_id} has epoch {coordinator_epoch}, "
                f"a newer one with {producer.coordinator_epoch} has ended a transaction already"
            )

    def _check_room(self) -> None:
        if len(self.by_id) >= self.limit and len(self.open) >= len(self.by_id):
            raise StorageError(f"{len(self.open)} transactions are open here, no more are taken; retry")

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.by_id.get(producer_id)
        return producer is not None and producer.first_offset >= 0 and producer.epoch == epoch

    # -- what was appended

    def apply(self, header: BatchHeader, base_offset: int, timestamp_ms: int, now_ms: int) -> None:
        """A batch of a producer was appended, or is found again when the log is read back."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self.by_id.get(producer_id)
        if producer is None or producer[0] != epoch:
            producer = self._meet(producer, epoch)
        _, _, window, _, first_offset, coordinator_epoch, marker_offset = producer
        self.changes += 1
        first = last = header.base_sequence
        if first >= 0:
            last = (first + header.last_offset_delta) % SEQUENCE_SPAN
        end = base_offset + header.last_offset_delta
        if header.count <= header.last_offset_delta and not header.attributes & LOG_APPEND_TIME:
            timestamp_ms = UNKNOWN_MS
        if len(window) >= WINDOW_BYTES:
            window = window[BATCH.size :]
        window += _pack(first, last, base_offset, end, timestamp_ms)
        if header.attributes & TRANSACTIONAL and first_offset < 0:
            first_offset = base_offset
            self.open.begin(base_offset)
        following = (last + 1) % SEQUENCE_SPAN
        self.by_id[producer_id] = _new(
            Producer, (epoch, now_ms, window, following, first_offset, coordinator_epoch, marker_offset)
        )

    def _meet(self, producer: Producer | None, epoch: int) -> Producer:
        """A producer in an epoch that is new to us."""
        if producer is not None:
            return producer._replace(epoch=epoch, window=b"", next_sequence=0)
        if len(self.by_id) >= self.limit:
            self._evict()
        return Producer(epoch)

    def aborted_by(self, producer_id: int, marker: Marker, offset: int) -> AbortedTransaction | None:
        """The transaction that a marker at an offset aborts, if it does."""
        producer = self.by_id.get(producer_id)
        if marker.committed or producer is None or producer.first_offset < 0:
            return None
        stable = self.open.first_but(producer.first_offset)
        return AbortedTransaction(
            producer_id, producer.first_offset, offset, offset + 1 if stable is None else stable
        )

    def end(self, header: BatchHeader, marker: Marker | None, offset: int, now_ms: int) -> None:
        """A control batch of a producer was appended, or is found again: its transaction has ended.

        The producer's next batch has the marker's epoch, and begins at sequence 0 if that is a new one. No marker:
        all that is left of the control batch is its epoch.
        """
        producer = self.by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._meet(producer, header.producer_epoch)
        self.changes += 1
        producer = producer._replace(heard_ms=now_ms)
        if marker is not None:
            if producer.first_offset >= 0:
                self.open.end(producer.first_offset, offset)
            producer = producer._replace(
                coordinator_epoch=marker.coordinator_epoch, marker_offset=offset, first_offset=NO_OFFSET
            )
        self.by_id[header.producer_id] = producer

    # -- forgetting

    def _evict(self) -> None:
        """Forget producers that were silent longest, but none with an open transaction: it would never be decided.

        Looks at a part of them at a time, those that were met first to begin with. `_check_room` has made sure that
        there is one to be found.
        """
        by_id = self.by_id
        for _ in range(2 + len(by_id) // EVICTION_SCAN):
            if not self._candidates:
                self._candidates = list(by_id)[::-1]
            assert isinstance(self._candidates, list)
            looked_at = self._candidates[-EVICTION_SCAN:]
            del self._candidates[-EVICTION_SCAN:]
            idle = [known for known in looked_at if known in by_id and by_id[known].first_offset < 0]
            count = max(1, len(idle) >> EVICTION_SHIFT)
            for known in nsmallest(count, idle, key=lambda known: by_id[known].heard_ms):
                del by_id[known]
            if idle:
                return

    def clock_was_set(self, by_ms: int, now_ms: int) -> None:
        """Somebody set the wall clock while we ran: who is known was heard of as long ago as before.

        Who was heard of since then cannot be told apart; it is remembered for longer, at worst.
        """
        for known, producer in self.by_id.items():
            if by_ms > 0 or producer.heard_ms > now_ms:
                self.by_id[known] = producer._replace(heard_ms=producer.heard_ms + by_ms)

    def expire(self, before_ms: int) -> int:
        """Forget producers not heard of since a time, unless they have an open transaction; how many there were."""
        gone = [
            known
            for known, producer in self.by_id.items()
            if producer.heard_ms < before_ms and producer.first_offset < 0
        ]
        for known in gone:
            del self.by_id[known]
        self.changes += len(gone)
        return len(gone)

    def forget_transactions(self) -> None:
        """Nobody knows which are open, but all that they have written is gone: then none is."""
        self.open = OpenTransactions()
        for known, producer in self.by_id.items():
            if producer.first_offset >= 0:
                self.by_id[known] = producer._replace(first_offset=NO_OFFSET)

    # -- snapshots

    def freeze(self) -> FrozenProducers:
        """The state as of now, to be encoded later, on a thread if there are many."""
        return FrozenProducers(self.by_id.copy(), self.open.ended)

    def snapshot(self) -> bytes:
        """The whole state as bytes, with a checksum."""
        return self.freeze().encode()

    @classmethod
    def restore(cls, data: bytes, limit: int = PRODUCER_IDS_MAX) -> "Producers | None":
        """The state that a snapshot holds, or None if its bytes are damaged."""
        frozen = FrozenProducers.decode(data)
        if frozen is None:
            return None
        state = cls(limit)
        state.by_id = dict(frozen.by_id)
        for ended in frozen.ended:
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
        f"producer {header.producer_id} sent a plain batch in the middle of its transaction; end that first"
    )

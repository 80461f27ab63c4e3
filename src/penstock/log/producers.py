"""What a partition remembers of its idempotent producers: the last five batches of each, and open transactions. Pure.

A batch that was sent again is answered with the offset it got the first time; one that leaves a gap is refused.
The state at any offset is the snapshot before it plus the headers of the batches in between, and their markers.
"""

import struct
import zlib
from collections import deque
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
from penstock.log.transactions import AbortedTransaction, OpenTransactions
from penstock.records.batch import BatchHeader
from penstock.records.build import Marker
from penstock.records.layout import TRANSACTIONAL

WINDOW: Final = 5
"""Batches remembered per producer: clients have at most this many in flight."""
REFUSED_MAX: Final = 1000
PRODUCERS_MAX: Final = 100_000
"""Per partition; past it those heard of longest ago are forgotten, as if they had expired."""
FORGET_SHIFT: Final = 8
"""Of so many, as a power of two, one is forgotten."""
SEQUENCE_SPAN: Final = 2**31
NO_SEQUENCE: Final = -1
"""Of batches that a broker made itself."""
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
BUMPED: Final = 2
"""The transaction version from which on every marker has a new epoch (KIP-890)."""

_SNAPSHOT_START: Final = struct.Struct(">4sI")  # magic, crc of the rest
_COUNT: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhqB")
_TRANSACTION: Final = struct.Struct(">iq")  # coordinator epoch, first offset: after each producer, since PST3
_BATCH: Final = struct.Struct(">iiqqq")
_ENDED: Final = struct.Struct(">qq")  # first offset, marker: after all producers, since PST3
_MAGIC: Final = b"PST3"
_MAGIC_BEFORE: Final = b"PSP2"


class Refused(NamedTuple):
    """The first batch of a producer that was not taken, and why."""

    sequence: int
    kind: type[PenstockError]


class SentBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class Producer:
    """One producer id: its epoch, its last batches, oldest first, its transaction, and when it was last heard of."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_offset", "heard_ms", "marker_offset")

    def __init__(self, epoch: int, heard_ms: int = 0) -> None:
        self.epoch = epoch
        self.heard_ms = heard_ms
        self.batches: deque[SentBatch] = deque(maxlen=WINDOW)
        self.first_offset = NO_OFFSET
        """Where its open transaction begins, if it has one."""
        self.coordinator_epoch = NO_EPOCH
        """Of whoever ended its last transaction."""
        self.marker_offset = NO_OFFSET
        """Of the end of its last transaction, as far as this process knows."""

    @property
    def is_transactional(self) -> bool:
        """Whether it has ever begun or ended a transaction here."""
        return self.first_offset >= 0 or self.coordinator_epoch >= 0


def sequence_after(sequence: int) -> int:
    """Sequences count up to 2^31-1 and begin again at 0."""
    return (sequence + 1) % SEQUENCE_SPAN


class Producers:
    """All producers of one partition."""

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
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
        if not is_new_epoch and producer.batches:
            last = (first + header.last_offset_delta) % SEQUENCE_SPAN
            for sent in producer.batches:
                if sent.first_sequence == first and sent.last_sequence == last:
                    return sent
            expected = sequence_after(producer.batches[-1].last_sequence)
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
        if producer is None or producer.epoch != key.epoch or not producer.batches:
            return NO_SEQUENCE
        return sequence_after(producer.batches[-1].last_sequence)

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
        if len(self.by_id) >= PRODUCERS_MAX and len(self.open) >= len(self.by_id):
            raise StorageError(f"{len(self.open)} transactions are open here, no more are taken; retry")

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.by_id.get(producer_id)
        return producer is not None and producer.first_offset >= 0 and producer.epoch == epoch

    # -- what was appended

    def apply(self, header: BatchHeader, base_offset: int, timestamp_ms: int, now_ms: int) -> None:
        """A batch of a producer was appended, or is found again when the log is read back."""
        producer = self.by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._meet(header)
        producer.heard_ms = now_ms
        self.changes += 1
        first = last = header.base_sequence
        if first >= 0:
            last = (first + header.last_offset_delta) % SEQUENCE_SPAN
        end = base_offset + header.last_offset_delta
        producer.batches.append(SentBatch(first, last, base_offset, end, timestamp_ms))
        if header.attributes & TRANSACTIONAL and producer.first_offset < 0:
            producer.first_offset = base_offset
            self.open.begin(base_offset)

    def _meet(self, header: BatchHeader) -> Producer:
        """A producer in an epoch that is new to us."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            if len(self.by_id) >= PRODUCERS_MAX:
                self._forget_some()
            producer = self.by_id[header.producer_id] = Producer(header.producer_epoch)
        producer.epoch = header.producer_epoch
        producer.batches.clear()
        return producer

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
            producer = self._meet(header)
        producer.heard_ms = now_ms
        self.changes += 1
        if marker is None:
            return
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.marker_offset = offset
        if producer.first_offset >= 0:
            self.open.end(producer.first_offset, offset)
            producer.first_offset = NO_OFFSET

    # -- forgetting

    def _forget_some(self) -> None:
        """Those heard of longest ago, but none with an open transaction: it would never be decided.

        A few at a time, since finding them takes a look at all.
        """
        idle = [known for known, producer in self.by_id.items() if producer.first_offset < 0]
        count = max(1, PRODUCERS_MAX >> FORGET_SHIFT)
        for known in nsmallest(count, idle, key=lambda known: self.by_id[known].heard_ms):
            del self.by_id[known]

    def clock_was_set(self, by_ms: int, now_ms: int) -> None:
        """Somebody set the wall clock while we ran: who is known was heard of as long ago as before.

        Who was heard of since then cannot be told apart; it is remembered for longer, at worst.
        """
        for producer in self.by_id.values():
            if by_ms > 0 or producer.heard_ms > now_ms:
                producer.heard_ms += by_ms

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
        for producer in self.by_id.values():
            producer.first_offset = NO_OFFSET

    # -- snapshots

    def snapshot(self) -> bytes:
        """The whole state as bytes, with a checksum."""
        parts = [_COUNT.pack(len(self.by_id))]
        for producer_id, producer in self.by_id.items():
            parts.append(_PRODUCER.pack(producer_id, producer.epoch, producer.heard_ms, len(producer.batches)))
            parts.append(_TRANSACTION.pack(producer.coordinator_epoch, producer.first_offset))
            parts.extend(_BATCH.pack(*sent) for sent in producer.batches)
        parts.extend(_ENDED.pack(*ended) for ended in self.open.ended)
        body = b"".join(parts)
        return _SNAPSHOT_START.pack(_MAGIC, zlib.crc32(body)) + body

    @classmethod
    def restore(cls, data: bytes) -> "Producers | None":
        """The state that a snapshot holds, or None if its bytes are damaged."""
        at = _SNAPSHOT_START.size
        if len(data) < at + _COUNT.size:
            return None
        magic, crc = _SNAPSHOT_START.unpack_from(data)
        if magic not in (_MAGIC, _MAGIC_BEFORE) or zlib.crc32(memoryview(data)[at:]) != crc:
            return None
        state = cls()
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(count):
            producer_id, epoch, heard_ms, batches = _PRODUCER.unpack_from(data, at)
            at += _PRODUCER.size
            producer = state.by_id[producer_id] = Producer(epoch, heard_ms)
            if magic == _MAGIC:
                producer.coordinator_epoch, producer.first_offset = _TRANSACTION.unpack_from(data, at)
                at += _TRANSACTION.size
            for _ in range(batches):
                producer.batches.append(SentBatch(*_BATCH.unpack_from(data, at)))
                at += _BATCH.size
        for ended in _ENDED.iter_unpack(memoryview(data)[at:]):
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

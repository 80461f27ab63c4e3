"""What a partition remembers of its idempotent producers: the last five batches of each. Pure.

A batch that was sent again is answered with the offset it got the first time; one that leaves a gap is refused.
The state at any offset is the snapshot before it plus the headers of the batches in between.
"""

import struct
import zlib
from collections import deque
from typing import Final, NamedTuple

from penstock.foundation.errors import InvalidProducerEpoch, OutOfOrderSequence
from penstock.records.batch import BatchHeader

WINDOW: Final = 5
"""Batches remembered per producer: clients have at most this many in flight."""
PRODUCERS_MAX: Final = 100_000
"""Per partition; past it the one heard of longest ago is forgotten, as if it had expired."""
SEQUENCE_SPAN: Final = 2**31

_SNAPSHOT_START: Final = struct.Struct(">4sI")  # magic, crc of the rest
_COUNT: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhqB")
_BATCH: Final = struct.Struct(">iiqqq")
_MAGIC: Final = b"PSP2"


class SentBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class Producer:
    """One producer id: its epoch, its last batches, oldest first, and when the broker last heard of it."""

    __slots__ = ("batches", "epoch", "heard_ms")

    def __init__(self, epoch: int, heard_ms: int) -> None:
        self.epoch = epoch
        self.heard_ms = heard_ms
        self.batches: deque[SentBatch] = deque(maxlen=WINDOW)


def sequence_after(sequence: int) -> int:
    """Sequences count up to 2^31-1 and begin again at 0."""
    return (sequence + 1) % SEQUENCE_SPAN


class Producers:
    """All producers of one partition."""

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        self.changes = 0
        """Counts what was applied, so that an unchanged state is not written again."""

    def check(self, header: BatchHeader) -> SentBatch | None:
        """None if the batch may be appended; the batch it repeats if it was sent before.

        Raises OutOfOrderSequence or InvalidProducerEpoch as Kafka does.
        """
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            # Forgotten or new: any sequence may begin (KIP-360).
            return None
        if header.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {header.producer_epoch}, "
                f"its newer instance has {producer.epoch}; start it again to get a new epoch"
            )
        first = header.base_sequence
        if header.producer_epoch > producer.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} began epoch {header.producer_epoch} with sequence {first}, "
                    "expected 0"
                )
            return None
        last = (first + header.last_offset_delta) % SEQUENCE_SPAN
        for sent in producer.batches:
            if sent.first_sequence == first and sent.last_sequence == last:
                return sent
        if producer.batches and first != sequence_after(producer.batches[-1].last_sequence):
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {first}, "
                f"expected {sequence_after(producer.batches[-1].last_sequence)}"
            )
        return None

    def apply(self, header: BatchHeader, base_offset: int, timestamp_ms: int, now_ms: int) -> None:
        """A batch of an idempotent producer was appended, or is found again when the log is read back."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            if len(self.by_id) >= PRODUCERS_MAX:
                del self.by_id[min(self.by_id, key=lambda known: self.by_id[known].heard_ms)]
            producer = self.by_id[header.producer_id] = Producer(header.producer_epoch, now_ms)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.heard_ms = now_ms
        if not header.is_control:
            first = header.base_sequence
            last = (first + header.last_offset_delta) % SEQUENCE_SPAN
            end = base_offset + header.last_offset_delta
            producer.batches.append(SentBatch(first, last, base_offset, end, timestamp_ms))
        self.changes += 1

    def expire(self, before_ms: int) -> int:
        """Forget producers not heard of since a time; how many there were."""
        gone = [known for known, producer in self.by_id.items() if producer.heard_ms < before_ms]
        for known in gone:
            del self.by_id[known]
        self.changes += len(gone)
        return len(gone)

    def snapshot(self) -> bytes:
        """The whole state as bytes, with a checksum."""
        parts = [_COUNT.pack(len(self.by_id))]
        for producer_id, producer in self.by_id.items():
            parts.append(_PRODUCER.pack(producer_id, producer.epoch, producer.heard_ms, len(producer.batches)))
            parts.extend(_BATCH.pack(*sent) for sent in producer.batches)
        body = b"".join(parts)
        return _SNAPSHOT_START.pack(_MAGIC, zlib.crc32(body)) + body

    @classmethod
    def restore(cls, data: bytes) -> "Producers | None":
        """The state that a snapshot holds, or None if its bytes are damaged."""
        at = _SNAPSHOT_START.size
        if len(data) < at + _COUNT.size:
            return None
        magic, crc = _SNAPSHOT_START.unpack_from(data)
        if magic != _MAGIC or zlib.crc32(memoryview(data)[at:]) != crc:
            return None
        state = cls()
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(count):
            producer_id, epoch, heard_ms, batches = _PRODUCER.unpack_from(data, at)
            at += _PRODUCER.size
            producer = state.by_id[producer_id] = Producer(epoch, heard_ms)
            for _ in range(batches):
                producer.batches.append(SentBatch(*_BATCH.unpack_from(data, at)))
                at += _BATCH.size
        return state

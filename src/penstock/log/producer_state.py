"""The state of one idempotent producer, and the producer state snapshot of a partition. Pure.

Both are immutable. A producer's last batches are stored packed, as in the snapshot file: a partition may have tens of
thousands of producers, and most of them never send again.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

WINDOW: Final = 5
"""Number of last batches remembered per producer: the maximum that clients have in flight."""
SEQUENCE_SPAN: Final = 2**31
NO_SEQUENCE: Final = -1
"""Base sequence of batches that a broker built, which have no sequence numbers."""
NO_OFFSET: Final = -1
NO_EPOCH: Final = -1

BATCH: Final = struct.Struct(">iiqqq")
WINDOW_BYTES: Final = WINDOW * BATCH.size
_SNAPSHOT_START: Final = struct.Struct(">4sI")  # magic, crc of the rest
_COUNT: Final = struct.Struct(">I")
_PRODUCER: Final = struct.Struct(">qhqB")  # id, epoch, last seen, batches: without a transaction, before PST3
_PRODUCER_ENTRY: Final = struct.Struct(">qhqBiq")  # the same, coordinator epoch, first offset
_ENDED: Final = struct.Struct(">qq")  # first offset, marker: after all producers, since PST3
_MAGIC: Final = b"PST3"
_MAGIC_BEFORE: Final = b"PSP2"


class SentBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class Producer(NamedTuple):
    """State of one producer id: epoch, last batches, open transaction, and when it was last seen."""

    epoch: int
    last_seen_ms: int = 0
    window: bytes = b""
    """The producer's last batches (at most WINDOW), packed, oldest first."""
    next_sequence: int = 0
    """Sequence expected of the producer's next batch; valid only if `window` (its last batches) is not empty."""
    first_offset: int = NO_OFFSET
    """The first offset of the producer's open transaction; -1 if there is none."""
    coordinator_epoch: int = NO_EPOCH
    """Epoch of the transaction coordinator that ended the producer's last transaction."""
    marker_offset: int = NO_OFFSET
    """Offset of the producer's last transaction marker; -1 if this process has not appended or replayed it."""

    @property
    def is_transactional(self) -> bool:
        """Whether the producer has ever begun or ended a transaction in this partition."""
        return self.first_offset >= 0 or self.coordinator_epoch >= 0

    @property
    def batches(self) -> list[SentBatch]:
        """The producer's last batches, unpacked, oldest first."""
        return [SentBatch._make(fields) for fields in BATCH.iter_unpack(self.window)]


def sequence_after(sequence: int) -> int:
    """Returns the sequence after `sequence`; sequences wrap from 2^31-1 to 0."""
    return (sequence + 1) % SEQUENCE_SPAN


class ProducerSnapshot(NamedTuple):
    """The state of all producers of a partition at one offset. `encode` may take long, and may run on a thread."""

    by_id: Mapping[int, Producer]
    ended: Sequence[tuple[int, int]]
    """First offset and marker offset of each ended transaction whose marker is possibly not committed yet."""

    def encode(self) -> bytes:
        """Returns the snapshot file's bytes, with a checksum."""
        parts = [_COUNT.pack(len(self.by_id))]
        for producer_id, (epoch, last_seen_ms, window, _, first_offset, coordinator_epoch, _) in self.by_id.items():
            count = len(window) // BATCH.size
            parts.append(
                _PRODUCER_ENTRY.pack(producer_id, epoch, last_seen_ms, count, coordinator_epoch, first_offset)
            )
            parts.append(window)
        parts.extend(_ENDED.pack(*ended) for ended in self.ended)
        body = b"".join(parts)
        return _SNAPSHOT_START.pack(_MAGIC, zlib.crc32(body)) + body

    @classmethod
    def decode(cls, data: bytes) -> "ProducerSnapshot | None":
        """Returns the decoded snapshot, or None if the bytes are damaged."""
        at = _SNAPSHOT_START.size
        if len(data) < at + _COUNT.size:
            return None
        magic, crc = _SNAPSHOT_START.unpack_from(data)
        if magic not in (_MAGIC, _MAGIC_BEFORE) or zlib.crc32(memoryview(data)[at:]) != crc:
            return None
        by_id: dict[int, Producer] = {}
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(count):
            first_offset, coordinator_epoch = NO_OFFSET, NO_EPOCH
            if magic == _MAGIC:
                entry = _PRODUCER_ENTRY.unpack_from(data, at)
                producer_id, epoch, last_seen_ms, batches, coordinator_epoch, first_offset = entry
                at += _PRODUCER_ENTRY.size
            else:
                producer_id, epoch, last_seen_ms, batches = _PRODUCER.unpack_from(data, at)
                at += _PRODUCER.size
            window = data[at : at + batches * BATCH.size]
            at += len(window)
            newest = BATCH.unpack_from(window, len(window) - BATCH.size)[1] if window else NO_SEQUENCE
            by_id[producer_id] = Producer(
                epoch, last_seen_ms, window, sequence_after(newest), first_offset, coordinator_epoch
            )
        return cls(by_id, list(_ENDED.iter_unpack(memoryview(data)[at:])))

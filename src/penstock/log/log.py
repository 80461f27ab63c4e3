"""The log of one partition: appends, reads, segment roll, last stable offset. Owned by the event loop's thread."""

import zlib
from bisect import bisect_right
from typing import NamedTuple

from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import (
    InvalidTimestamp,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PenstockError,
    StorageError,
)
from penstock.foundation.settings import INT_MAX
from penstock.log.aborted import aborted_between
from penstock.log.producers import SentBatch
from penstock.log.removal import TruncatableLogFiles
from penstock.log.segment import NO_TIMESTAMP, Segment
from penstock.log.settings import Storage
from penstock.log.transactions import AbortedTransaction
from penstock.records.batch import (
    BatchHeader,
    batches,
    check_batch,
    client_fields,
    patch_log_append_time,
    patch_offsets,
    read_header,
)
from penstock.records.build import Marker, read_marker
from penstock.records.layout import CONTROL, HEADER_BYTES, TRANSACTIONAL
from penstock.wire.schema import Buffer


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int
    """The time of the append if the topic has message.timestamp.type=LogAppendTime, else -1."""
    repeated: bool
    """True if the batch is a duplicate: the offsets are then those assigned at its first append."""


_new = tuple.__new__  # half the time of NamedTuple's own constructors


class Log(TruncatableLogFiles):
    """The log of one partition, with appends and reads. Created by recovery.open_log."""

    # -- segments

    def roll(self, now_ms: int) -> Segment:
        """Starts a new segment at the log end offset and returns it; returns the active segment if that is empty."""
        old = self.segments[-1]
        if not old.size:
            return old
        fresh = Segment(self.disk, self.folder, self.end_offset, has_index=False)
        fresh.created_ms = now_ms
        self._unsynced.append(old)
        self._closed_bytes += old.size
        self.segments.append(fresh)
        self._active = fresh
        self._bases.append(fresh.base_offset)
        seed = zlib.crc32(f"{self.folder}/{fresh.base_offset}".encode())
        self._jitter_ms = seed % (min(self.settings.segment_jitter_ms, self.settings.segment_ms) + 1)
        self.snapshot_producers()
        if self.settings.storage is Storage.MEMORY:
            self._drop_oldest_segments()
        return fresh

    def _drop_oldest_segments(self) -> None:
        """Enforces retention.bytes on a memory log immediately, without waiting for the periodic retention run."""
        count, kept_bytes = 0, self._closed_bytes
        while kept_bytes > self.settings.retention_bytes:
            kept_bytes -= self.segments[count].size
            count += 1
        if count:
            self.trim(self._bases[count])

    # -- appending: validation depends on who built the batch; `_append` then writes it

    def append(
        self, batch: bytearray | memoryview, leader_epoch: int, now_ms: int, may_begin: bool = False
    ) -> Appended:
        """Appends one batch of a producer, and writes its assigned offsets and leader epoch into `batch`.

        `may_begin`: the batch may start a transaction here: the coordinator has verified the partition (KIP-890).
        Raises Kafka's errors: CorruptMessage, InvalidRecord, MessageTooLarge, InvalidTimestamp, OutOfOrderSequence,
        InvalidProducerEpoch, InvalidTxnState, StorageError. After an error nothing was written.
        """
        settings = self.settings
        if len(batch) > settings.max_message_bytes:
            self._check_size(len(batch))
        fields = client_fields(batch)
        _, _, _, _, _, _, _, base_ms, latest_ms, producer_id, _, _, _ = fields
        if producer_id >= 0:
            header = _new(BatchHeader, fields)
            sent = self.producers.check(header, may_begin)
            if sent is not None:
                return self._repeat_result(header, sent)
        if not settings.log_append_time and (
            latest_ms - now_ms > settings.timestamp_after_max_ms
            or now_ms - base_ms > settings.timestamp_before_max_ms
        ):
            self._check_times(base_ms, latest_ms, now_ms)
        return self._append(batch, fields, now_ms, leader_epoch)

    def refuse(self, batch: Buffer, error: PenstockError) -> None:
        """Records that a producer's batch was rejected and will be retried: until then, the producer's later batches
        are rejected with the same error, so that they do not overtake it."""
        if len(batch) >= HEADER_BYTES:
            self.producers.refuse(read_header(batch), error)

    def append_own(
        self,
        batch: bytearray,
        leader_epoch: int,
        now_ms: int,
        marker: Marker | None = None,
        any_size: bool = False,
    ) -> Appended:
        """Appends one batch that this broker built: state of a coordinator, or a transaction marker.

        Skips the checks for producers' batches: the batch has no sequence numbers, and may start a transaction in
        this partition without the coordinator's verification. `marker`: the content of a transaction marker; if
        None, it is read from the batch. `any_size`: do not check max.message.bytes, for a copy of messages that were
        accepted before. Raises MessageTooLarge, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced,
        StorageError.
        """
        header = read_header(batch)
        is_control = header.attributes & CONTROL
        if not is_control and not any_size:
            self._check_size(len(batch))
        if header.producer_id < 0:
            marker = None
        elif not is_control:
            self.producers.check_own(header)
            marker = None
        else:
            marker = marker or read_marker(batch)
            if marker is not None:
                key = ProducerKey(header.producer_id, header.producer_epoch)
                self.producers.check_marker(key, marker.coordinator_epoch)
        return self._append(batch, header, now_ms, leader_epoch, marker)

    def append_replica(self, data: Buffer, now_ms: int) -> None:
        """Appends batches fetched from the leader, with the leader's offsets and epochs (a follower's append).
        Raises CorruptMessage for a damaged batch, StorageError for wrong offsets; earlier batches stay appended."""
        view = memoryview(data)
        for at, header in batches(data):
            check_batch(data, at, header)
            if header.base_offset != self.end_offset:
                self._check_gap(header, now_ms)
            batch = view[at : at + header.size_bytes]
            marker = read_marker(batch) if header.is_control and header.producer_id >= 0 else None
            self._append(batch, header, now_ms, None, marker)

    def _append(
        self,
        batch: bytearray | memoryview,
        header: tuple[int, ...],
        now_ms: int,
        leader_epoch: int | None,
        marker: Marker | None = None,
    ) -> Appended:
        """Appends a validated batch; all appends end here. After a StorageError nothing was written.

        `header`: the fields of its BatchHeader. A leader passes its `leader_epoch` and assigns offsets, epoch and log
        append time; a follower passes None: the leader has assigned them. `marker`: content of a transaction marker.
        """
        base, length, epoch, _, _, attributes, delta, _, latest_ms, producer_id, producer_epoch, _, _ = header
        settings = self.settings
        append_time_ms = -1
        if leader_epoch is not None:
            base, epoch = self.end_offset, leader_epoch
            if settings.log_append_time:
                patch_log_append_time(batch, 0, now_ms)
                append_time_ms = latest_ms = now_ms
            if base + delta >= self.offset_limit:
                raise StorageError(f"{self.folder}: offsets from {self.offset_limit} on are not reserved yet; retry")
            patch_offsets(batch, 0, base, length, epoch)
        last = base + delta
        if latest_ms < 0:
            latest_ms = now_ms
        segment = self._active
        position, size = segment.file.size, len(batch)
        if position and (
            position + size > settings.segment_bytes
            or last - segment.base_offset > INT_MAX
            or latest_ms - segment.first_ms > settings.segment_ms - self._jitter_ms
        ):
            segment = self._roll_if_due(segment, size, last, latest_ms, now_ms)
            position = segment.file.size
        aborted = None if marker is None else self.producers.aborted_by(producer_id, marker, base)
        if aborted is not None:  # added before the marker is written, so that no reader misses it
            segment.aborted.add(aborted)
        try:
            segment.file.append(batch)
        except StorageError:
            if aborted is not None:
                segment.aborted.remove_newest()
            raise
        segment.index_batch(position, size, base, last, latest_ms, settings.index_interval_bytes)
        self.end_offset = last + 1
        if aborted is not None:
            self.newest_abort = base
        if producer_id >= 0:
            if attributes & TRANSACTIONAL:
                self.has_transactions = True
            if attributes & CONTROL:
                self.producers.end(ProducerKey(producer_id, producer_epoch), marker, base, now_ms)
            else:
                self.producers.apply(header, base, latest_ms, now_ms)
        if epoch != self.epochs.latest:
            self.note_epoch(epoch, base)
        return _new(Appended, (base, last, append_time_ms, False))

    def _repeat_result(self, header: BatchHeader, sent: SentBatch) -> Appended:
        """Returns the result of the first append of a duplicate batch.

        Raises OutOfOrderSequence if the batch reuses the sequence numbers of an aborted, unacknowledged batch
        (librdkafka does this after an abort): acknowledging it as a duplicate would lose its records.
        """
        if self.settings.log_append_time:
            return Appended(sent.base_offset, sent.last_offset, sent.timestamp_ms, True)
        if header.is_transactional and 0 <= header.max_timestamp != sent.timestamp_ms >= 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} reused sequence {header.base_sequence} for other records than those "
                f"at offset {sent.base_offset}; call InitProducerId to get a new epoch"
            )
        return Appended(sent.base_offset, sent.last_offset, -1, True)

    def _check_size(self, size: int) -> None:
        if size > self.settings.max_message_bytes:
            raise MessageTooLarge(
                f"the batch has {size} bytes, max.message.bytes is {self.settings.max_message_bytes}"
            )

    def _check_times(self, base_ms: int, latest_ms: int, now_ms: int) -> None:
        """Raises InvalidTimestamp if a timestamp is farther from `now_ms` than message.timestamp.*.max.ms allows."""
        settings = self.settings
        if latest_ms - now_ms > settings.timestamp_after_max_ms:
            raise InvalidTimestamp(
                f"timestamp {latest_ms} is more than message.timestamp.after.max.ms="
                f"{settings.timestamp_after_max_ms} ahead of the broker's {now_ms}"
            )
        if base_ms != NO_TIMESTAMP and now_ms - base_ms > settings.timestamp_before_max_ms:
            raise InvalidTimestamp(
                f"timestamp {base_ms} is more than message.timestamp.before.max.ms="
                f"{settings.timestamp_before_max_ms} behind the broker's {now_ms}"
            )

    def _check_gap(self, header: BatchHeader, now_ms: int) -> None:
        """Checks a fetched batch that does not start at the log end offset. Accepts an offset gap before the
        batch, left by compaction on the leader; raises StorageError if the batch starts below the log end offset."""
        if header.base_offset < self.end_offset:
            raise StorageError(
                f"{self.folder} ends at offset {self.end_offset}, but the leader sent offset {header.base_offset}"
            )
        if not self.checkpoint.has_holes:
            self.mark_holes()
        if header.base_offset - self.end_offset > INT_MAX // 2:
            self.end_offset = header.base_offset  # an index cannot express such a gap within a segment
            self.roll(now_ms)

    def _roll_if_due(self, segment: Segment, size: int, last: int, latest_ms: int, now_ms: int) -> Segment:
        """Returns the segment to append to: a new one if the active segment is full or too old."""
        size += segment.file.size
        if last - segment.base_offset > INT_MAX or size > INT_MAX:
            return self.roll(now_ms)  # the index has 32-bit offsets and positions
        first_ms = segment.first_timestamp_ms
        waited_ms = latest_ms - first_ms if first_ms >= 0 else now_ms - segment.created_ms
        is_due = size > self.settings.segment_bytes or waited_ms > self.settings.segment_ms - self._jitter_ms
        return self.roll(now_ms) if is_due and self.disk.spare_files() else segment

    # -- reading

    def read(self, offset: int, max_bytes: int, limit: int, *, blocking: bool = False, force: bool = True) -> Buffer:
        """Returns whole batches, from the batch that contains `offset` up to the offset `limit`, at most `max_bytes`.

        `force`: returns the first batch even if it is larger than `max_bytes`, so that consumers make progress.
        Raises OffsetOutOfRange; unless `blocking`, raises ColdRead if the bytes are not in the page cache.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(
                f"{self.folder} holds offsets {self.start_offset} to {self.end_offset}, asked for {offset}"
            )
        if offset >= limit or (max_bytes <= 0 and not force):
            return b""
        segment = self._active
        if offset >= segment.base_offset:
            number = len(self._bases) - 1
        else:
            number = max(0, bisect_right(self._bases, offset) - 1)
            segment = self.segments[number]
        position = segment.hints.get(offset)
        if position is not None and limit >= self.end_offset and position < segment.file.size:
            return segment.read(position, segment.file.size, max_bytes, blocking, force)
        found = segment.locate(offset, blocking)
        while found is None and number + 1 < len(self.segments):
            number += 1  # compaction removed all batches up to the next segment
            segment = self.segments[number]
            found = segment.locate(offset, blocking)
        if found is None or found.base_offset >= limit:
            return b""
        return segment.read(found.position, self._end_position(number, limit, blocking), max_bytes, blocking, force)

    def _end_position(self, number: int, limit: int, blocking: bool) -> int:
        """Returns the position in the file of segment `number` where the batches below the offset `limit` end.
        Unless `blocking`, raises ColdRead if bytes to read are not in the page cache."""
        segment = self.segments[number]
        if limit >= self.end_offset or (number + 1 < len(self.segments) and limit >= self._bases[number + 1]):
            return segment.file.size
        found = segment.locate(limit, blocking)
        return found.position if found else segment.size

    # -- transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the last stable offset: every transaction below it has its marker below the high watermark.
        Ignores transactions whose records retention has deleted."""
        first = self.producers.open.first_unstable_offset(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return min(high_watermark, max(first, self.start_offset))

    def aborted_between(self, first: int, end: int) -> list[AbortedTransaction]:
        """Returns aborted transactions with records between two offsets, sorted by first offset. `end` must not
        exceed the last stable offset: transactions above it may still be aborted."""
        if first > self.newest_abort:
            return []
        lists = (segment.aborted for segment in self.segments_from(first))
        return sorted(aborted_between(lists, first, end), key=lambda entry: entry.first_offset)

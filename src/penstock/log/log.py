"""The write-ahead log of one partition. One thread (the event loop's) owns it."""

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
from penstock.log.removal import ShrinkingFiles
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
    """The broker's time, where the topic uses it, else -1."""
    repeated: bool
    """The batch was here already: these are the offsets it got then."""


_new = tuple.__new__  # half the time of NamedTuple's own constructors


def _another(header: BatchHeader, sent: SentBatch) -> OutOfOrderSequence:
    """A client that aborts a transaction may forget a batch whose answer it has not had, and count on as if that had
    never been sent (librdkafka does): to answer its next one as known would lose it."""
    return OutOfOrderSequence(
        f"producer {header.producer_id} sent sequence {header.base_sequence} again, with other records than those at "
        f"offset {sent.base_offset}: begin anew, in another epoch"
    )


class Log(ShrinkingFiles):
    """Appends and reads. Made by recovery.open_log."""

    # -- growing

    def roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the end of the log, unless the last one is new."""
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
            self._shed()
        return fresh

    def _shed(self) -> None:
        """A memory log gives up its oldest segments at once, not when retention next comes by."""
        count, kept_bytes = 0, self._closed_bytes
        while kept_bytes > self.settings.retention_bytes:
            kept_bytes -= self.segments[count].size
            count += 1
        if count:
            self.trim(self._bases[count])

    # -- appending

    def append(
        self, batch: bytearray | memoryview, leader_epoch: int, now_ms: int, may_begin: bool = False
    ) -> Appended:
        """Append one batch as a producer sent it; its offsets are set in place.

        `may_begin`: it may be the first of a transaction here, since the coordinator knows of it (KIP-890).
        Raises what Kafka would answer: CorruptMessage, InvalidRecord, MessageTooLarge, InvalidTimestamp,
        OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState, StorageError. Then nothing was written.
        """
        settings = self.settings
        size = len(batch)
        if size > settings.max_message_bytes:
            self._check_size(size)
        fields = client_fields(batch)
        _, length, _, _, _, attributes, last_offset_delta, base_ms, latest_ms, producer_id, _, _, _ = fields
        if producer_id >= 0:
            header = _new(BatchHeader, fields)
            sent = self.producers.check(header, may_begin)
            if sent is not None:
                if (
                    attributes & TRANSACTIONAL
                    and not settings.log_append_time
                    and 0 <= latest_ms != sent.timestamp_ms >= 0
                ):
                    raise _another(header, sent)
                was_ms = sent.timestamp_ms if settings.log_append_time else -1
                return Appended(sent.base_offset, sent.last_offset, was_ms, True)
        append_time_ms = -1
        if settings.log_append_time:
            patch_log_append_time(batch, 0, now_ms)
            append_time_ms = latest_ms = now_ms
        elif (
            latest_ms - now_ms > settings.timestamp_after_max_ms
            or now_ms - base_ms > settings.timestamp_before_max_ms
            or latest_ms < 0
        ):
            latest_ms = self._check_times(base_ms, latest_ms, now_ms)
        base = self.end_offset
        last = base + last_offset_delta
        if last >= self.offset_limit:
            raise StorageError(f"{self.folder}: offsets from {self.offset_limit} on are not reserved yet; retry")
        patch_offsets(batch, 0, base, length, leader_epoch)
        segment = self._active
        position = segment.file.size
        if position and (
            position + size > settings.segment_bytes
            or last - segment.base_offset > INT_MAX
            or latest_ms - segment.first_timestamp_ms > settings.segment_ms - self._jitter_ms
        ):
            segment = self._roll_if_due(segment, size, last, latest_ms, now_ms)
        segment.append(batch, base, last, latest_ms, settings.index_interval_bytes)
        self.end_offset = last + 1
        if producer_id >= 0:
            self.producers.apply(header, base, latest_ms, now_ms)
            if attributes & TRANSACTIONAL:
                self.has_transactions = True
        if leader_epoch > self.epochs.latest:
            self.note_epoch(leader_epoch, base)
        return _new(Appended, (base, last, append_time_ms, False))

    def refuse(self, batch: Buffer, error: PenstockError) -> None:
        """A client's batch could not be appended, and will be sent again."""
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
        """Append one batch that this broker made: a coordinator's state, or the end of a transaction.

        It is not checked as a client's is, and has no sequence; one in a producer's transaction may begin that here.
        `marker`: what it says, if it is an end; else that is read from it. `any_size`: of messages that were small
        enough when they came.
        Raises MessageTooLarge, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced, StorageError.
        """
        header = read_header(batch)
        _, length, _, _, _, attributes, last_offset_delta, _, latest_ms, producer_id, _, _, _ = header
        if not attributes & CONTROL and not any_size:
            self._check_size(len(batch))
        if producer_id >= 0:
            marker = self._check_own(header, batch, marker)
        if latest_ms < 0:
            latest_ms = now_ms
        append_time_ms = -1
        if self.settings.log_append_time:
            patch_log_append_time(batch, 0, now_ms)
            append_time_ms = latest_ms = now_ms
        base = self.end_offset
        last = base + last_offset_delta
        if last >= self.offset_limit:
            raise StorageError(f"{self.folder}: offsets from {self.offset_limit} on are not reserved yet; retry")
        patch_offsets(batch, 0, base, length, leader_epoch)
        if producer_id >= 0:
            placed = header._replace(base_offset=base, leader_epoch=leader_epoch)
            self._take(batch, placed, marker, latest_ms, now_ms)
        else:  # as `_take` does where there is no producer
            segment = self._active
            if segment.file.size:
                segment = self._roll_if_due(segment, len(batch), last, latest_ms, now_ms)
            segment.append(batch, base, last, latest_ms, self.settings.index_interval_bytes)
            self.end_offset = last + 1
            if leader_epoch > self.epochs.latest:
                self.note_epoch(leader_epoch, base)
        return _new(Appended, (base, last, append_time_ms, False))

    def append_replica(self, data: Buffer, now_ms: int) -> None:
        """Append batches as the leader has them, offsets, epochs and all: what a follower does.

        One that is damaged, or is not the next, raises CorruptMessage or StorageError; what came before it is kept.
        """
        view = memoryview(data)
        for at, header in batches(data):
            check_batch(data, at, header)
            if header.base_offset != self.end_offset:
                self._check_gap(header, now_ms)
            batch = view[at : at + header.size_bytes]
            marker = read_marker(batch) if header.is_control and header.producer_id >= 0 else None
            latest_ms = header.max_timestamp if header.max_timestamp >= 0 else now_ms
            self._take(batch, header, marker, latest_ms, now_ms)

    def _check_gap(self, header: BatchHeader, now_ms: int) -> None:
        """The leader may have compacted what lies between; it cannot have gone back."""
        if header.base_offset < self.end_offset:
            raise StorageError(
                f"{self.folder} ends at {self.end_offset}, its leader sent offset {header.base_offset} after that"
            )
        if not self.checkpoint.has_holes:
            self.note_holes()
        if header.base_offset - self.end_offset > INT_MAX // 2:
            self.end_offset = header.base_offset  # further than an index can say: in a segment of its own
            self.roll(now_ms)

    def _take(self, batch: Buffer, header: BatchHeader, marker: Marker | None, latest_ms: int, now_ms: int) -> None:
        """A batch whose offsets are set, at the end of the log, and with it all that is remembered of it."""
        segment = self._active
        if segment.file.size:
            segment = self._roll_if_due(segment, len(batch), header.last_offset, latest_ms, now_ms)
        self._write(segment, batch, header, marker, latest_ms)
        self.end_offset = header.next_offset
        if header.producer_id >= 0:
            self.has_transactions = self.has_transactions or header.is_transactional
            if header.is_control:
                self.producers.end(header, marker, header.base_offset, now_ms)
            else:
                self.producers.apply(header, header.base_offset, latest_ms, now_ms)
        if header.leader_epoch != self.epochs.latest:
            self.note_epoch(header.leader_epoch, header.base_offset)

    def _check_size(self, size: int) -> None:
        if size > self.settings.max_message_bytes:
            raise MessageTooLarge(
                f"the batch has {size} bytes, max.message.bytes is {self.settings.max_message_bytes}"
            )

    def _check_own(self, header: BatchHeader, batch: bytearray, marker: Marker | None) -> Marker | None:
        if not header.is_control:
            self.producers.check_own(header)
            return None
        if marker is None:
            marker = read_marker(batch)
        if marker is not None:
            key = ProducerKey(header.producer_id, header.producer_epoch)
            self.producers.check_marker(key, marker.coordinator_epoch)
        return marker

    def _write(
        self, segment: Segment, batch: Buffer, header: BatchHeader, marker: Marker | None, latest_ms: int
    ) -> None:
        """The batch, and before it the transaction that it aborts: no reader may find the one without the other."""
        base = header.base_offset
        aborted = self.producers.aborted_by(header.producer_id, marker, base) if marker is not None else None
        if aborted is not None:
            segment.aborted.add(aborted)
        try:
            segment.append(batch, base, header.last_offset, latest_ms, self.settings.index_interval_bytes)
        except StorageError:
            if aborted is not None:
                segment.aborted.take_back()
            raise
        if aborted is not None:
            self.newest_abort = base

    def _check_times(self, base_ms: int, latest_ms: int, now_ms: int) -> int:
        """The time to file a batch under. Raises InvalidTimestamp if the producer's clock is too far off."""
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
        return latest_ms if latest_ms >= 0 else now_ms

    def _roll_if_due(self, segment: Segment, size: int, last: int, latest_ms: int, now_ms: int) -> Segment:
        """The segment to append to. A segment whose first batch has no time counts from when it was made."""
        size += segment.file.size
        if last - segment.base_offset > INT_MAX or size > INT_MAX:
            return self.roll(now_ms)  # an index could not say where it is
        first_ms = segment.first_timestamp_ms
        waited_ms = latest_ms - first_ms if first_ms >= 0 else now_ms - segment.created_ms
        is_due = size > self.settings.segment_bytes or waited_ms > self.settings.segment_ms - self._jitter_ms
        return self.roll(now_ms) if is_due and self.disk.room() else segment

    # -- reading

    def read(self, offset: int, max_bytes: int, limit: int, *, blocking: bool = False, force: bool = True) -> Buffer:
        """Batches from the one that holds `offset` on, below the offset `limit`, cut after `max_bytes`.

        `force`: a first batch larger than that comes whole, so that every consumer moves on. Not blocking: raises
        ColdRead where the disk would have to be waited for.
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
        place = segment.locate(offset, blocking)
        while place is None and number + 1 < len(self.segments):
            number += 1  # compaction left nothing between this offset and the next segment
            segment = self.segments[number]
            place = segment.locate(offset, blocking)
        if place is None or place.base_offset >= limit:
            return b""
        return segment.read(place.position, self._end_position(number, limit, blocking), max_bytes, blocking, force)

    def _end_position(self, number: int, limit: int, blocking: bool) -> int:
        """Where, in a segment, the batches below an offset end."""
        segment = self.segments[number]
        if limit >= self.end_offset or (number + 1 < len(self.segments) and limit >= self._bases[number + 1]):
            return segment.file.size
        place = segment.locate(limit, blocking)
        return place.position if place else segment.size

    # -- transactions

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has an open transaction here, in that epoch."""
        return self.producers.is_in_transaction(producer_id, epoch)

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins, if there is one."""
        return self.producers.open.first_offset

    def stable_end(self, high_watermark: int) -> int:
        """The last stable offset: everything below is decided, and committed if all below `high_watermark` is.

        A transaction has ended only when its marker is committed. What retention took holds back no one.
        """
        first = self.producers.open.first_undecided(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return min(high_watermark, max(first, self.start_offset))

    def aborted_between(self, first: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records between two offsets, in the order in which they begin.

        `end` is at most the last stable offset: behind it, more may be aborted at any time.
        """
        if first > self.newest_abort:
            return []
        lists = (segment.aborted for segment in self.segments_from(first))
        return sorted(aborted_between(lists, first, end), key=lambda entry: entry.first_offset)

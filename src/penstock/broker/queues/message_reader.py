"""Reads messages of a partition for delivery: the next messages into a small window, single messages by offset.

Batches are decoded only when one of their messages is needed. Control batches and aborted records are skipped;
records of open transactions are not read (KIP-98).
"""

import logging
from array import array
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from penstock.foundation.errors import MessageTooLarge, OffsetNotAvailable, OffsetOutOfRange, PenstockError
from penstock.log.disk import ColdRead
from penstock.queues.commands import Fresh
from penstock.records import kernel
from penstock.records.batch import BatchHeader, batches
from penstock.records.columns import INLINE_BODY_BYTES, Columns, decode_columns, header_column
from penstock.records.layout import CODEC_MASK, RECORD_BYTES_MIN
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

READ_AHEAD_BYTES: Final = 24 << 10
"""Number of bytes per read. Below 32 KiB, the log returns a copy rather than a memory-mapped part of its file."""
LOOKUP_BYTES: Final = 4 << 10
PLAUSIBLE_RATIO: Final = 16
"""Largest plausible compression ratio: a batch header whose record count implies a larger one is not trusted."""
HEADERS_MAX: Final = 1000
"""Maximum number of headers delivered with a message. SQS allows ten, but Kafka producers may write more."""
CACHED_BATCHES_MAX: Final = 4
"""Number of decoded batches cached for redelivery: messages of the same batch are often redelivered together."""
DELAY_HEADER: Final = b"penstock-delay-ms"
_NEVER_MS: Final = 1 << 60
"""Upper limit of due times, in milliseconds since the epoch: producers may set any timestamp."""
_DIGITS_MAX: Final = 12
"""Maximum number of digits of a delay header in milliseconds, enough for thirty years; further digits are ignored."""
_NO_COLUMNS: Final = Columns(b"", tuple(memoryview(array("q")) for _ in range(10)))


Header = tuple[str, bytes | None]


class Message(NamedTuple):
    """One record of the topic."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class FreshMessages(NamedTuple):
    """Messages of a partition that were never delivered to a share group: those from the group's end offset on."""

    fresh: tuple[Fresh, ...]
    end: int
    """Exclusive end of the offsets read: `fresh` has all messages from the first requested offset up to here."""
    has_own_delays: bool
    """Whether some messages may have a delay header: then later messages may be due before earlier ones."""


class LazyBatch:
    """One record batch, decoded on first use; messages are created one at a time."""

    __slots__ = (
        "_batch",
        "_body_max",
        "_decoded",
        "_delays",
        "_is_count_doubtful",
        "base_offset",
        "count",
        "next_offset",
        "rows",
    )

    def __init__(self, batch: bytes, header: BatchHeader, body_max: int) -> None:
        """`body_max`: a batch whose decompressed size is larger is treated as unreadable."""
        self._batch = batch
        self._body_max = body_max
        is_compressed = header.attributes & CODEC_MASK != 0
        self._is_count_doubtful = is_compressed and header.count * RECORD_BYTES_MIN > PLAUSIBLE_RATIO * len(batch)
        self.base_offset: Final = header.base_offset
        self.next_offset: Final = header.next_offset
        self.rows: Final = header.count
        self.count = header.count
        """Number of records; 0 once the batch proves unreadable, so that it does not block other messages."""
        self._decoded: Columns | None = None
        self._delays: tuple[memoryview, memoryview] | None = None

    @property
    def _columns(self) -> Columns:
        if self._decoded is None:
            self.decode()
            assert self._decoded is not None
        return self._decoded

    def decode(self) -> None:
        """Decodes the batch if it is not decoded yet. Raises ColdRead if a thread must decode it."""
        if self._decoded is None:
            try:
                self._decode(min(INLINE_BODY_BYTES, self._body_max))
            except MessageTooLarge:
                raise ColdRead("a large batch", lambda: self._decode(self._body_max)) from None

    def _decode(self, max_bytes: int) -> None:
        """Decodes the batch; may run on two threads at once. Raises MessageTooLarge if it exceeds `max_bytes`."""
        batch, delays = self._batch, None
        if self._decoded is not None:
            return
        try:
            columns = decode_columns(batch, max_bytes)
            if bytes(columns.headers_count).strip(b"\0"):  # a fast check for any count that is not 0
                delays = header_column(columns, DELAY_HEADER)
        except PenstockError as error:
            if isinstance(error, MessageTooLarge) and max_bytes < self._body_max:
                raise
            logger.warning("batch_not_read offset=%d reason=%r", self.base_offset, str(error))
            columns, self.count = _NO_COLUMNS, 0
        self._delays = delays
        self._decoded = columns  # last: another thread that sees this must see the rest
        self._batch = b""

    @property
    def _is_plain(self) -> bool:
        """Whether offsets follow from the header alone: no gaps from compaction, and a plausible record count."""
        is_dense = self.count == self.next_offset - self.base_offset
        return self._decoded is None and is_dense and not self._is_count_doubtful

    def offset_of(self, row: int) -> int:
        return self.base_offset + row if self._is_plain else self._columns.offsets[row]

    def append_undecoded(self, rows: range, found: list[Fresh]) -> bool:
        """Like `append_rows` with delay_ms=None and no message groups, but avoids decoding. Always returns False,
        because delay headers are ignored."""
        if not self._is_plain:
            return self.append_rows(rows, found, None, False)
        if rows:
            found.append(Fresh(self.base_offset + rows[0], 0, len(self._batch) // self.count, "", len(rows)))
        return False

    def append_rows(self, rows: range, found: list[Fresh], delay_ms: int | None, with_groups: bool) -> bool:
        """Appends the messages in these rows to `found`; returns whether any of them may have a delay header.
        `delay_ms`: delay of messages without a delay header; None: all messages are due at once. `with_groups`:
        whether to set each message's group, which is the record key (FIFO queues)."""
        columns = self._columns
        if not self.count:
            return False
        offsets, sizes = columns.offsets, columns.record_len
        has_own_delays = self._delays is not None and delay_ms is not None
        if not (has_own_delays or delay_ms or with_groups):
            found.extend([Fresh(offsets[row], 0, sizes[row]) for row in rows])
            return False
        for row in rows:
            own_ms = self.delay_ms(row) if has_own_delays else None
            wait_ms = (delay_ms or 0) if own_ms is None else own_ms
            due_ms = min(columns.timestamps[row] + wait_ms, _NEVER_MS) if wait_ms > 0 else 0
            group = (columns.key(row) or b"").decode(errors="replace") if with_groups else ""
            found.append(Fresh(offsets[row], due_ms, sizes[row], group))
        return has_own_delays

    def row_of(self, offset: int) -> int:
        """Returns the row of the first record at or after an offset; `count` if there is none."""
        if offset <= self.base_offset:
            return 0
        if self._is_plain:
            return min(offset - self.base_offset, self.count)
        offsets = self._columns.offsets
        if not self.count:
            return 0
        row = min(offset - self.base_offset, self.count - 1)  # exact unless compaction has left gaps
        if offsets[row] == offset:
            return row
        return next((found for found in range(self.count) if offsets[found] >= offset), self.count)

    def delay_ms(self, row: int) -> int | None:
        """Returns the value of the message's delay header, in milliseconds; None if the header is missing."""
        columns = self._columns
        if self._delays is None:
            return None
        at, length = self._delays[0][row], self._delays[1][row]
        if length <= 0:
            return None
        text = bytes(columns.body[at : at + min(length, _DIGITS_MAX)])
        return int(text) if text.isdigit() else None

    def due_times(self, offset: int, delay_ms: int) -> Iterator[tuple[int, int]]:
        """Yields (offset, due time) of each delayed message from `offset` on; `delay_ms` is the default delay."""
        columns = self._columns
        if self._delays is None and not delay_ms:
            return
        for row in range(self.row_of(offset), self.count):
            own_ms = self.delay_ms(row)
            wait_ms = delay_ms if own_ms is None else own_ms
            if wait_ms > 0:
                yield columns.offsets[row], columns.timestamps[row] + wait_ms

    def message_at(self, offset: int, headers_max: int = HEADERS_MAX) -> Message | None:
        """Returns the message at an offset, with its first `headers_max` headers; None if there is no message."""
        columns, row = self._columns, offset - self.base_offset  # exact unless compaction has left gaps
        if not 0 <= row < self.count or columns.offsets[row] != offset:
            row = self.row_of(offset)
            if row >= self.count or columns.offsets[row] != offset:
                return None
        return Message(
            offset,
            columns.timestamps[row],
            columns.key(row),
            columns.value(row),
            tuple(islice(self._headers(row), headers_max)) if headers_max and columns.headers_count[row] else (),
        )

    def headers_at(self, offset: int) -> Iterator[Header]:
        """Yields all headers of the message at an offset one by one, because there may be hundreds of thousands."""
        row = self.row_of(offset)
        return self._headers(row) if self._columns.headers_count[row] else iter(())

    def _headers(self, row: int) -> Iterator[Header]:
        columns = self._columns
        body, at = columns.body, columns.headers_at[row : row + 1]
        entries = kernel.active.list_headers(body, at, columns.headers_count[row : row + 1])
        return (
            (
                bytes(body[name_at : name_at + name_len]).decode(errors="replace"),
                None if value_len < 0 else bytes(body[value_at : value_at + value_len]),
            )
            for name_at, name_len, value_at, value_len in zip(*entries, strict=True)
        )


def readable_end(partition: Partition, *, stable: bool = True) -> int:
    """Returns the offset below which messages may be delivered: the last stable offset if `stable`, else the high
    watermark; lower if the topic has a delay."""
    limit = partition.last_stable_offset if stable else partition.high_watermark
    return limit if partition.visibility is None else partition.visibility.visible_to(limit)


def read_batches(
    partition: Partition, offset: int, max_bytes: int, *, stable: bool = True
) -> tuple[list[LazyBatch], int]:
    """Returns about `max_bytes` of batches from `offset` on, and the offset after them (`offset` if there is
    nothing to read yet). `stable`: reads up to the last stable offset, without aborted batches; else up to the
    high watermark. Raises ColdRead if the data must first be read from disk, on a thread."""
    limit = readable_end(partition, stable=stable)
    if offset >= limit:
        return [], offset
    data = partition.read(offset, max_bytes, stable=stable)
    found, end = [], offset
    aborted: list[tuple[int, int, int]] | None = None
    for at, header in batches(data):
        end = header.next_offset
        if header.is_control or end <= offset or not header.count:
            continue
        if header.is_transactional and stable:
            if aborted is None:
                aborted = [entry[:3] for entry in partition.log.aborted_between(offset, limit)]
            if any(pid == header.producer_id and first <= header.base_offset <= last for pid, first, last in aborted):
                continue
        body_max = partition.log.settings.decompressed_bytes_max
        found.append(LazyBatch(bytes(data[at : at + header.size_bytes]), header, body_max))
    return found, end if end > offset else limit  # compaction has removed all records up to the limit


class Window:
    """The next never-delivered messages of one partition for one share group, read ahead from the log."""

    def __init__(self, partition: Partition, *, stable: bool = True) -> None:
        self._partition = partition
        self._stable = stable
        self._batches: deque[LazyBatch] = deque()
        self._from = 0
        self._to = 0
        """The offset up to which messages were read; the window has all messages from `_from` up to `_to`."""
        self._rows = 0

    @property
    def limit(self) -> int:
        """The offset up to which messages may be read now."""
        return readable_end(self._partition, stable=self._stable)

    def seek(self, offset: int) -> None:
        """Moves the start of the window to an offset, which may be below the log start offset."""
        if self._from <= offset <= self._to:
            self._from = offset
            while self._batches and self._batches[0].next_offset <= offset:
                self._rows -= self._batches.popleft().rows
        else:
            self.clear(offset)

    def clear(self, offset: int = 0) -> None:
        self._batches.clear()
        self._rows = 0
        self._from = self._to = offset

    def fill(self, count: int) -> None:
        """Reads until the window has `count` messages, or all messages that can be read now. Raises ColdRead if a
        thread must first read or decode data."""
        while self._rows < count + self._rows_before_window():
            found, end = read_batches(self._partition, self._to, READ_AHEAD_BYTES, stable=self._stable)
            if end == self._to:
                return
            self._batches += found
            self._rows += sum(batch.rows for batch in found)
            self._to = end

    def _rows_before_window(self) -> int:
        """Returns the number of messages in the window's first batch that are before the window's start."""
        return self._batches[0].row_of(self._from) if self._batches else 0

    def fresh(
        self, count: int, delay_ms: int | None, *, with_groups: bool = False, whole_max: int = 0
    ) -> FreshMessages:
        """Returns the next `count` messages. If `whole_max` > 0, also returns the rest of the last batch, up to
        `whole_max` messages in total. `delay_ms`: delay of messages without a delay header; None: all messages are
        due at once. `with_groups`: whether to set each message's group (FIFO queues)."""
        found: list[Fresh] = []
        total = 0
        has_own_delays = False
        for batch in self._batches:
            if total >= count:
                return FreshMessages(tuple(found), batch.base_offset, has_own_delays)
            rows = range(batch.row_of(self._from), batch.count)[: max(count, whole_max) - total]
            if not whole_max:
                rows = rows[: count - total]
            total += len(rows)
            if delay_ms is None and not with_groups:
                batch.append_undecoded(rows, found)
            else:
                has_own_delays = batch.append_rows(rows, found, delay_ms, with_groups) or has_own_delays
            if rows and rows[-1] + 1 < batch.count:
                return FreshMessages(tuple(found), batch.offset_of(rows[-1] + 1), has_own_delays)
        return FreshMessages(tuple(found), self._to, has_own_delays)

    def message(self, offset: int) -> Message | None:
        """Returns the message at an offset; None if the offset is not in the window."""
        for batch in self._batches:
            if batch.base_offset <= offset < batch.next_offset:
                return batch.message_at(offset)
        return None


class MessageLookup:
    """Reads single messages of a partition by offset; caches the last few batches."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._cache: deque[LazyBatch] = deque(maxlen=CACHED_BATCHES_MAX)

    def message(self, offset: int, *, stable: bool = True, headers_max: int = HEADERS_MAX) -> Message | None:
        """Returns the message at an offset, with up to `headers_max` headers; None if it was removed. Raises ColdRead
        if a thread must read or decode it, and OffsetNotAvailable if it is not known to be committed."""
        batch = self.batch(offset, stable=stable)
        return None if batch is None else batch.message_at(offset, headers_max)

    def batch(self, offset: int, *, stable: bool = True) -> LazyBatch | None:
        """Returns the batch that contains an offset; None if it was removed. Raises ColdRead if it is not in the page
        cache, and OffsetNotAvailable if the offset is not below the last stable offset (if not `stable`, the high
        watermark)."""
        batch = next((cached for cached in self._cache if cached.base_offset <= offset < cached.next_offset), None)
        if batch is None:
            partition = self._partition
            if readable_end(partition, stable=stable) <= offset < partition.log.end_offset:
                raise OffsetNotAvailable(
                    f"offset {offset} of {partition.name} is not known to be committed; try again"
                )
            try:
                found, _ = read_batches(partition, offset, LOOKUP_BYTES, stable=stable)
            except OffsetOutOfRange:
                return None
            batch = next((each for each in found if each.base_offset <= offset < each.next_offset), None)
            if batch is None:
                return None
            self._cache.append(batch)
        return batch

    def clear_cache(self) -> None:
        """Drops the cached batches: retention may have removed them from the log."""
        self._cache.clear()

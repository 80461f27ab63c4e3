"""Reading messages: ahead of a group's position, a small window at a time, and back by their offsets.

Batches stay closed until somebody wants a message of them. Control batches and what was aborted are no messages, and
what is not decided yet is not read (KIP-98).
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

AHEAD_BYTES: Final = 24 << 10
"""Read at a time: less than what a log gives out as views of its files, which must not be kept."""
BACK_BYTES: Final = 4 << 10
PLAUSIBLE_RATIO: Final = 16
"""Compressed batches whose header claims more records than fit into so many times their size are opened first."""
HEADERS_MAX: Final = 1000
"""Headers of a record that receivers are told of: SQS allows ten, but any Kafka producer may write to a queue."""
OPENED_MAX: Final = 4
"""Batches of messages that are delivered again are kept a while: most of the time their neighbours are, too."""
DELAY_HEADER: Final = b"penstock-delay-ms"
_NEVER_MS: Final = 1 << 60
"""A producer may give its messages any time."""
_DIGITS_MAX: Final = 12
"""Of a delay: what is longer is cut, and is thirty years."""
_NOTHING: Final = Columns(b"", tuple(memoryview(array("q")) for _ in range(10)))


Header = tuple[str, bytes | None]


class Message(NamedTuple):
    """One record of the topic."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Ahead(NamedTuple):
    """Messages that nobody has looked at yet."""

    fresh: tuple[Fresh, ...]
    end: int
    """They are all that there are up to here."""
    are_varied: bool
    """Some say themselves when they are due: those behind them may be due before."""


class Opened:
    """One batch. It is decoded when somebody first looks into it; messages are made of it one by one."""

    __slots__ = (
        "_batch",
        "_body_max",
        "_decoded",
        "_delays",
        "_is_doubtful",
        "base_offset",
        "count",
        "next_offset",
        "rows",
    )

    def __init__(self, batch: bytes, header: BatchHeader, body_max: int) -> None:
        """`body_max`: decompressed bytes above which nobody can read it."""
        self._batch = batch
        self._body_max = body_max
        is_compressed = header.attributes & CODEC_MASK != 0
        self._is_doubtful = is_compressed and header.count * RECORD_BYTES_MIN > PLAUSIBLE_RATIO * len(batch)
        self.base_offset: Final = header.base_offset
        self.next_offset: Final = header.next_offset
        self.rows: Final = header.count
        self.count = header.count
        """None, once it turns out that nobody can read it: a producer has sealed nonsense, which keeps no others."""
        self._decoded: Columns | None = None
        self._delays: tuple[memoryview, memoryview] | None = None

    @property
    def _columns(self) -> Columns:
        if self._decoded is None:
            self.open()
            assert self._decoded is not None
        return self._decoded

    def open(self) -> None:
        """Decode it, unless it was. Raises ColdRead if that is for a thread to do."""
        if self._decoded is None:
            try:
                self._decode(min(INLINE_BODY_BYTES, self._body_max))
            except MessageTooLarge:
                raise ColdRead("a large batch", lambda: self._decode(self._body_max)) from None

    def _decode(self, max_bytes: int) -> None:
        """Maybe on two threads at a time. Raises MessageTooLarge for a body that only a thread may decode."""
        batch, delays = self._batch, None
        if self._decoded is not None:
            return
        try:
            columns = decode_columns(batch, max_bytes)
            if bytes(columns.headers_count).strip(b"\0"):  # any that is not 0, at the speed of a search in bytes
                delays = header_column(columns, DELAY_HEADER)
        except PenstockError as error:
            if isinstance(error, MessageTooLarge) and max_bytes < self._body_max:
                raise
            logger.warning("batch_not_read offset=%d reason=%r", self.base_offset, str(error))
            columns, self.count = _NOTHING, 0
        self._delays = delays
        self._decoded = columns  # whoever sees this finds all else in its place
        self._batch = b""

    @property
    def _is_plain(self) -> bool:
        """Whether it is closed still, and its offsets are known without opening it: compaction has left no gaps, and
        the number of records in its header can be true."""
        is_dense = self.count == self.next_offset - self.base_offset
        return self._decoded is None and is_dense and not self._is_doubtful

    def offset_of(self, row: int) -> int:
        return self.base_offset + row if self._is_plain else self._columns.offsets[row]

    def count_off(self, rows: range, found: list[Fresh]) -> bool:
        """As `look`, where nothing that messages say counts: the batch need not be opened, if that can be."""
        if not self._is_plain:
            return self.look(rows, found, None, False)
        if rows:
            found.append(Fresh(self.base_offset + rows[0], 0, len(self._batch) // self.count, "", len(rows)))
        return False

    def look(self, rows: range, found: list[Fresh], delay_ms: int | None, with_groups: bool) -> bool:
        """Add messages to those that were found; whether any says itself when it is due.

        `delay_ms`: of those that do not; None: all are due at once, whatever they say.
        """
        columns = self._columns
        if not self.count:
            return False
        offsets, sizes = columns.offsets, columns.record_len
        are_varied = self._delays is not None and delay_ms is not None
        if not (are_varied or delay_ms or with_groups):
            found.extend([Fresh(offsets[row], 0, sizes[row]) for row in rows])
            return False
        for row in rows:
            own_ms = self.delay_ms(row) if are_varied else None
            wait_ms = (delay_ms or 0) if own_ms is None else own_ms
            due_ms = min(columns.timestamps[row] + wait_ms, _NEVER_MS) if wait_ms > 0 else 0
            group = (columns.key(row) or b"").decode(errors="replace") if with_groups else ""
            found.append(Fresh(offsets[row], due_ms, sizes[row], group))
        return are_varied

    def row_of(self, offset: int) -> int:
        """The first record at an offset or after it; `count` if there is none."""
        if offset <= self.base_offset:
            return 0
        if self._is_plain:
            return min(offset - self.base_offset, self.count)
        offsets = self._columns.offsets
        if not self.count:
            return 0
        row = min(offset - self.base_offset, self.count - 1)  # right there, unless compaction has left gaps
        if offsets[row] == offset:
            return row
        return next((found for found in range(self.count) if offsets[found] >= offset), self.count)

    def delay_ms(self, row: int) -> int | None:
        """What a message says itself about its delay."""
        columns = self._columns
        if self._delays is None:
            return None
        at, length = self._delays[0][row], self._delays[1][row]
        if length <= 0:
            return None
        text = bytes(columns.body[at : at + min(length, _DIGITS_MAX)])
        return int(text) if text.isdigit() else None

    def dues(self, offset: int, delay_ms: int) -> Iterator[tuple[int, int]]:
        """From an offset on, the messages that are delayed, and when they are due."""
        columns = self._columns
        if self._delays is None and not delay_ms:
            return
        for row in range(self.row_of(offset), self.count):
            own_ms = self.delay_ms(row)
            wait_ms = delay_ms if own_ms is None else own_ms
            if wait_ms > 0:
                yield columns.offsets[row], columns.timestamps[row] + wait_ms

    def message_at(self, offset: int, headers_max: int = HEADERS_MAX) -> Message | None:
        """The message at an offset, if there is one, with its first headers."""
        columns, row = self._columns, offset - self.base_offset  # right there, unless compaction has left gaps
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
        """All headers of the message at an offset, one by one: there may be hundreds of thousands."""
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


def readable_to(partition: Partition, *, stable: bool = True) -> int:
    """Messages below may be given to somebody now; what is held back may not."""
    limit = partition.last_stable_offset if stable else partition.high_watermark
    return limit if partition.visibility is None else partition.visibility.visible_to(limit)


def read_on(partition: Partition, offset: int, max_bytes: int, *, stable: bool = True) -> tuple[list[Opened], int]:
    """Batches of messages from an offset on, and the offset behind all that was looked at. Raises ColdRead.

    The same offset again: there is nothing more yet.
    """
    limit = readable_to(partition, stable=stable)
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
            if any(who == header.producer_id and first <= header.base_offset <= last for who, first, last in aborted):
                continue
        body_max = partition.log.settings.decompressed_bytes_max
        found.append(Opened(bytes(data[at : at + header.size_bytes]), header, body_max))
    return found, end if end > offset else limit  # compaction left nothing between


class Window:
    """The next messages of one group on one partition, decoded ahead of its position."""

    def __init__(self, partition: Partition, *, stable: bool = True) -> None:
        self._partition = partition
        self._stable = stable
        self._ahead: deque[Opened] = deque()
        self._from = 0
        self._to = 0
        """The window holds all messages from here to there."""
        self._rows = 0

    @property
    def limit(self) -> int:
        """As far as it may be read now."""
        return readable_to(self._partition, stable=self._stable)

    def seek(self, offset: int) -> None:
        """Have the window begin at an offset. One that is gone from the log is passed over, to the first there is."""
        if self._from <= offset <= self._to:
            self._from = offset
            while self._ahead and self._ahead[0].next_offset <= offset:
                self._rows -= self._ahead.popleft().rows
        else:
            self.clear(offset)

    def clear(self, offset: int = 0) -> None:
        self._ahead.clear()
        self._rows = 0
        self._from = self._to = offset

    def fill(self, count: int) -> None:
        """Read until there are so many messages, or there is nothing more to be read. Raises ColdRead."""
        while self._rows < count + self._begun():
            found, end = read_on(self._partition, self._to, AHEAD_BYTES, stable=self._stable)
            if end == self._to:
                return
            self._ahead += found
            self._rows += sum(batch.rows for batch in found)
            self._to = end

    def _begun(self) -> int:
        """Messages of the first batch that lie before the window."""
        return self._ahead[0].row_of(self._from) if self._ahead else 0

    def fresh(self, count: int, delay_ms: int | None, *, with_groups: bool = False, whole_max: int = 0) -> Ahead:
        """The next messages, as the machine wants to know them: `count` of them, or `whole_max` if that is more and
        they are in one batch.

        `delay_ms`: of those that do not say themselves when they are due. None: all are due at once, whatever they
        say, and batches stay closed.
        """
        found: list[Fresh] = []
        total = 0
        varied = False
        for batch in self._ahead:
            if total >= count:
                return Ahead(tuple(found), batch.base_offset, varied)
            rows = range(batch.row_of(self._from), batch.count)[: max(count, whole_max) - total]
            if not whole_max:
                rows = rows[: count - total]
            total += len(rows)
            if delay_ms is None and not with_groups:
                batch.count_off(rows, found)
            else:
                varied = batch.look(rows, found, delay_ms, with_groups) or varied
            if rows and rows[-1] + 1 < batch.count:
                return Ahead(tuple(found), batch.offset_of(rows[-1] + 1), varied)
        return Ahead(tuple(found), self._to, varied)

    def message(self, offset: int) -> Message | None:
        """A message of the window, if it is there."""
        for batch in self._ahead:
            if batch.base_offset <= offset < batch.next_offset:
                return batch.message_at(offset)
        return None


class Back:
    """Reads messages of one partition back by their offsets."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._kept: deque[Opened] = deque(maxlen=OPENED_MAX)

    def message(self, offset: int, *, stable: bool = True, headers_max: int = HEADERS_MAX) -> Message | None:
        """Returns the message at an offset, None if it was removed. Raises as `batch` does."""
        batch = self.batch(offset, stable=stable)
        return None if batch is None else batch.message_at(offset, headers_max)

    def batch(self, offset: int, *, stable: bool = True) -> Opened | None:
        """Returns the batch that an offset is in, None if it was removed. Raises ColdRead; OffsetNotAvailable if it
        cannot be read yet, as at a new leader that does not know how far its log is committed."""
        batch = next((kept for kept in self._kept if kept.base_offset <= offset < kept.next_offset), None)
        if batch is None:
            partition = self._partition
            if readable_to(partition, stable=stable) <= offset < partition.log.end_offset:
                raise OffsetNotAvailable(
                    f"offset {offset} of {partition.name} is not known to be committed; try again"
                )
            try:
                found, _ = read_on(partition, offset, BACK_BYTES, stable=stable)
            except OffsetOutOfRange:
                return None
            batch = next((each for each in found if each.base_offset <= offset < each.next_offset), None)
            if batch is None:
                return None
            self._kept.append(batch)
        return batch

    def forget(self) -> None:
        """Retention may have taken it by now."""
        self._kept.clear()

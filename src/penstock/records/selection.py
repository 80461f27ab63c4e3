"""What a consumer is sent of batches when it shall not see all of their records: see `Selection`.

How it is written was tried with real clients. Records stay at their own offsets, in batches that end with the last
one that is kept, under the codec, the times and the producer that they came with. What is left out behind the last of
them becomes one control batch (`skip_marker`) at the last offset that was looked at: consumers move past it and show
nothing. In between nothing is needed, for offsets may have gaps, as after compaction.

A reader of committed records is sent no list of aborted transactions with this: the marker that ends one may be left
out, and the reader would then drop what its producer wrote later. The broker leaves those records out itself. What is
left keeps its producer and its transactional bit: with an empty list, clients deliver it.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

from penstock.records.batch import BatchHeader, batches
from penstock.records.build import skip_marker
from penstock.records.columns import Columns, decode_columns, select_records
from penstock.records.layout import Buffer


class Aborted(Protocol):
    """A transaction that does not count: an `AbortedTransaction` of the log is one."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int:
        """Of the marker that aborted it."""


class Selected(NamedTuple):
    records: bytes
    """What to send; nothing only if there was nothing to look at."""
    next_offset: int
    """Where to go on: behind everything that was looked at."""
    kept: int
    """How many records."""


class Selection:
    """An answer in the making. Every batch is given to it in the order of the log, by one of three methods:

    - `keep`: all of its records, as they are; it stays closed;
    - `choose`: those of its records whose byte in a mask is not zero;
    - `skip`: none of them.

    Batches that are nobody's to see (markers, what was aborted) are skipped by `is_visible`, which is asked first.
    """

    def __init__(self, from_offset: int, aborted: Iterable[Aborted] = ()) -> None:
        self.next_offset = from_offset
        self.count = 0
        self.size_bytes = 0
        """Of the batches that are kept so far."""
        self._kept_to = from_offset
        self._parts: list[Buffer] = []
        self._last: BatchHeader | None = None
        self._aborted: dict[int, list[Aborted]] = {}
        self.expect_aborted(aborted)

    def expect_aborted(self, aborted: Iterable[Aborted]) -> None:
        """Transactions whose records shall not be seen, in batches that are yet to come."""
        self._aborted = {}
        for entry in aborted:
            self._aborted.setdefault(entry.producer_id, []).append(entry)

    def is_visible(self, header: BatchHeader) -> bool:
        """Whether a reader may see records of this batch at all; if not, it is skipped."""
        if header.is_control or header.count == 0 or self._is_aborted(header):
            self.skip(header)
            return False
        return True

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not self._aborted or not header.is_transactional:
            return False
        entries = self._aborted.get(header.producer_id, ())
        return any(entry.first_offset <= header.base_offset <= entry.last_offset for entry in entries)

    def keep(self, batch: Buffer, header: BatchHeader) -> None:
        self._add(batch, header.count, header.next_offset)
        self._pass(header)

    def choose(self, batch: Buffer, header: BatchHeader, columns: Columns, mask: Buffer) -> None:
        kept = select_records(batch, columns, mask, keep_last_offset=False)
        if kept is not None:
            count = len(mask) - bytes(mask).count(0)
            is_whole = count == columns.count
            # One that is kept whole may end in a gap that compaction left: it is as it was.
            self._add(batch if is_whole else kept, count, header.next_offset if is_whole else _end(columns, mask))
        self._pass(header)

    def skip(self, header: BatchHeader) -> None:
        self._pass(header)

    def _add(self, batch: Buffer, count: int, end_offset: int) -> None:
        self._parts.append(batch)
        self.size_bytes += len(batch)
        self.count += count
        self._kept_to = end_offset

    def _pass(self, header: BatchHeader) -> None:
        self._last = header
        self.next_offset = header.next_offset

    def answer(self) -> Selected:
        """All that was kept, and one control batch for what was left out behind it."""
        parts, last = self._parts, self._last
        if last is not None and self._kept_to < self.next_offset:
            timestamp_ms = max(last.max_timestamp, 0)
            parts = [*parts, skip_marker(self.next_offset - 1, timestamp_ms, last.leader_epoch)]
        return Selected(b"".join(parts), self.next_offset, self.count)


def _end(columns: Columns, mask: Buffer) -> int:
    """Behind the last record that a mask keeps."""
    return columns.offsets[len(bytes(mask).rstrip(b"\x00")) - 1] + 1


def hide(
    data: Buffer,
    hidden: Callable[[BatchHeader], Collection[int] | None],
    *,
    from_offset: int,
    aborted: Iterable[Aborted] = (),
) -> Selected:
    """Whole batches as they were read from a log, less the records at the offsets that `hidden` names for each batch.

    A batch of which it names none (None, or an empty collection) stays closed and is sent as it is; so no thread is
    needed for `data` without hidden records, and if no batch has any, do not call this at all: send `data` itself.
    `aborted`: for a reader of committed records, `log.aborted_between(from_offset, end)`; send it an empty list then.
    Batches with hidden records are decompressed and compressed again: for large ones, on a thread.

        answer = hide(data, index.delayed_in, from_offset=7)   # answer.records goes to the consumer
    """
    selection = Selection(from_offset, aborted)
    view = memoryview(data)
    for at, header in batches(data):
        if not selection.is_visible(header):
            continue
        batch = view[at : at + header.size_bytes]
        offsets = hidden(header)
        if not offsets:
            selection.keep(batch, header)
            continue
        columns = decode_columns(batch)
        selection.choose(batch, header, columns, mask_without(columns, offsets))
    return selection.answer()


def mask_without(columns: Columns, offsets: Collection[int]) -> bytearray:
    """A byte for each record: 0 for those at these offsets, 1 for all others."""
    if columns.count and columns.offsets[-1] - columns.offsets[0] == columns.count - 1:
        mask, base = bytearray(b"\x01" * columns.count), columns.offsets[0]
        for offset in offsets:
            if 0 <= offset - base < columns.count:
                mask[offset - base] = 0
        return mask
    wanted = frozenset(offsets)
    return bytearray(offset not in wanted for offset in columns.offsets)

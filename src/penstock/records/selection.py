"""Filters record batches for consumers that must not see all records, as in views (filtered virtual topics).

Delayed messages, which are delivered by later records, are removed in the same way. Records keep their offsets,
codec, timestamps and producer; a filtered batch ends with its last kept record. If records are skipped after the last
kept record, one control batch (`skip_marker`) at the last examined offset makes consumers advance past them.
Consumers accept all other gaps between offsets: this was tested with real clients.

A read_committed consumer gets an empty list of aborted transactions with such a response, because an abort marker may
be skipped, and the consumer would then drop later records of its producer. The broker skips aborted records itself.
Kept records still have their producer and transactional bit: with an empty list, clients deliver them.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from penstock.records.batch import BatchHeader
from penstock.records.build import skip_marker
from penstock.records.columns import Columns, select_records
from penstock.records.layout import Buffer


class Aborted(Protocol):
    """Protocol class of an aborted transaction; implemented by the log's `AbortedTransaction`."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int:
        """Offset of the transaction's abort marker."""


class Selected(NamedTuple):
    records: bytes
    """The batches to send to the consumer; empty only if no batch was examined."""
    next_offset: int
    """The offset after the last examined batch."""
    kept: int
    """Number of records in `records`."""


class Selection:
    """Builds a filtered response. The caller passes every batch in log order to one of three methods:

    - `keep`: keeps all records of the batch, unchanged, without decompression;
    - `choose`: keeps the records of the batch whose byte in a mask is not zero;
    - `skip`: keeps no records of the batch.

    Call `is_visible` first: it skips batches that no consumer may see (markers, aborted batches).
    """

    def __init__(self, from_offset: int, aborted: Iterable[Aborted] = ()) -> None:
        self.next_offset = from_offset
        self.count = 0
        self.size_bytes = 0
        """Total size of the kept batches so far, in bytes."""
        self._kept_to = from_offset
        self._parts: list[Buffer] = []
        self._last: BatchHeader | None = None
        self._aborted: dict[int, list[Aborted]] = {}
        self.expect_aborted(aborted)

    def expect_aborted(self, aborted: Iterable[Aborted]) -> None:
        """Sets the aborted transactions: `is_visible` skips their batches from now on."""
        self._aborted = {}
        for entry in aborted:
            self._aborted.setdefault(entry.producer_id, []).append(entry)

    def is_visible(self, header: BatchHeader) -> bool:
        """Returns whether consumers may see this batch. If not (it is a control batch, empty, or of an aborted
        transaction), also skips it: calls `skip`."""
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
        self._advance(header)

    def choose(self, batch: Buffer, header: BatchHeader, columns: Columns, mask: Buffer) -> None:
        kept = select_records(batch, columns, mask, keep_last_offset=False)
        if kept is not None:
            count = len(mask) - bytes(mask).count(0)
            is_whole = count == columns.count
            # A batch kept whole may end in a gap left by compaction: send it unchanged.
            self._add(
                batch if is_whole else kept, count, header.next_offset if is_whole else _end_after_mask(columns, mask)
            )
        self._advance(header)

    def skip(self, header: BatchHeader) -> None:
        self._advance(header)

    def _add(self, batch: Buffer, count: int, end_offset: int) -> None:
        self._parts.append(batch)
        self.size_bytes += len(batch)
        self.count += count
        self._kept_to = end_offset

    def _advance(self, header: BatchHeader) -> None:
        self._last = header
        self.next_offset = header.next_offset

    def answer(self) -> Selected:
        """Returns the kept records. If records after the last kept one were skipped, adds a control batch that
        makes consumers advance past them."""
        parts, last = self._parts, self._last
        if last is not None and self._kept_to < self.next_offset:
            timestamp_ms = max(last.max_timestamp, 0)
            parts = [*parts, skip_marker(self.next_offset - 1, timestamp_ms, last.leader_epoch)]
        return Selected(b"".join(parts), self.next_offset, self.count)


def _end_after_mask(columns: Columns, mask: Buffer) -> int:
    """Returns the offset after the last record whose byte in `mask` is not zero."""
    return columns.offsets[len(bytes(mask).rstrip(b"\x00")) - 1] + 1


def mask_without(columns: Columns, offsets: Collection[int]) -> bytearray:
    """Returns a byte per record: 0 if the record is at one of these offsets, else 1."""
    if columns.count and columns.offsets[-1] - columns.offsets[0] == columns.count - 1:
        mask, base = bytearray(b"\x01" * columns.count), columns.offsets[0]
        for offset in offsets:
            if 0 <= offset - base < columns.count:
                mask[offset - base] = 0
        return mask
    wanted = frozenset(offsets)
    return bytearray(offset not in wanted for offset in columns.offsets)

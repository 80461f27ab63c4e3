"""The log cleaner (compaction): rewrites closed segments so that only the last record of each key is left.

Aborted records are removed. Transaction markers stay as long as a batch of their transaction does, and for
delete.retention.ms after that, so that consumers that have started to read see them (KIP-534).

Compaction runs on a thread, on its own files. Once all new segments are fsynced, a manifest lists which segment
replaces which; from then on the swap is always completed, after a crash by recovery.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from penstock.foundation.errors import InvalidRecord, PenstockError, StorageError
from penstock.foundation.settings import INT_MAX, LONG_MAX
from penstock.log.aborted import AbortedList, aborted_between
from penstock.log.disk import Disk
from penstock.log.io_queue import Outcome, Work, ignore_outcome
from penstock.log.log import Log
from penstock.log.offset_map import KeyTable
from penstock.log.removal import TornLog
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings
from penstock.log.transactions import AbortedTransaction, CleanedTransactions
from penstock.records.batch import BatchHeader, assemble
from penstock.records.build import Record, build_batch, read_marker, read_records
from penstock.records.columns import Columns, decode_columns, select_records
from penstock.records.layout import CODEC_MASK
from penstock.wire.schema import Buffer

MANIFEST: Final = "swap"
CLEANED: Final = ".cleaned"


def plan(log: Log, now_ms: int, limit: int, keys_max: int, secret: bytes) -> "Job | None":
    """Returns a compaction job if the log is due for compaction, else None. Only fsynced batches below the offset
    `limit` whose transactions have ended are compacted. `keys_max`: number of keys at which the job's key table is
    full; the next job compacts the rest. `secret`: 16 random bytes, which key the table's hash function."""
    settings = log.settings
    if not settings.compacted:
        return None
    limit = min(log.last_stable_offset(limit), log.durable_stable_offset, log.checkpoint.synced_to)
    chosen = []
    lag_ms = settings.min_compaction_lag_ms
    for segment, following in pairwise(log.segments):
        if following.base_offset > limit or (lag_ms and segment.latest_ms > now_ms - lag_ms):
            break
        chosen.append(segment)
    dirty_from = max(log.checkpoint.clean_to, log.start_offset)
    bounds = [*(segment.base_offset for segment in log.segments[1:]), log.end_offset]
    dirty = [segment for segment, end in zip(chosen, bounds, strict=False) if end > dirty_from]
    if not dirty:
        return None
    dirty_bytes = sum(segment.size for segment in dirty)
    ratio = dirty_bytes / max(1, sum(segment.size for segment in chosen))
    overdue = any(segment.first_timestamp_ms < now_ms - settings.max_compaction_lag_ms for segment in dirty)
    if ratio < settings.min_cleanable_dirty_ratio and not overdue:
        return None
    end_offset = bounds[len(chosen) - 1]
    return Job(
        disk=log.disk,
        folder=log.folder,
        settings=settings,
        sources=[segment.duplicate() for segment in chosen],
        end_offset=end_offset,
        dirty_from=dirty_from,
        keys_max=keys_max,
        secret=secret,
        now_ms=now_ms,
        producers=frozenset(log.producers.by_id),
        aborted_later=log.aborted_between(end_offset, end_offset),
    )


@dataclass(slots=True, kw_only=True)
class Result:
    """The outcome of a compaction: base offsets of the segments that each new segment replaces, and statistics."""

    clean_to: int
    replaced: dict[int, list[int]] = field(default_factory=dict)
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0


@dataclass(slots=True, kw_only=True)
class Job:
    disk: Disk
    folder: str
    settings: LogSettings
    sources: list[Segment]
    end_offset: int
    dirty_from: int
    keys_max: int
    secret: bytes
    now_ms: int
    producers: frozenset[int]
    """Producer ids in the log's producer state (not expired)."""
    aborted_later: list[AbortedTransaction]
    """Transactions that began before `end_offset` and whose abort markers are at or after it."""
    last_of_producers: dict[int, int] = field(default_factory=dict)
    """By producer id: last offset of the batch that must stay, because it holds the producer's epoch and sequence."""

    def run(self) -> Result:
        """Writes the new segments, beside the old ones. Runs on a thread, and touches no state of the event loop."""
        result = Result(clean_to=0)
        try:
            table = KeyTable(self.keys_max, self.secret)
            result.clean_to = self._build_key_table(table)
            if self.producers:
                self.last_of_producers = self._find_last_of_producers()
            transactions = self._new_transactions()
            for group in self._groups(result.clean_to):
                self._rewrite(group, table, transactions, result)
            return result
        except StorageError:
            self.discard(result)  # free the space: the disk may be full
            raise
        finally:
            for segment in self.sources:
                segment.close()

    def _build_key_table(self, table: KeyTable) -> int:
        """Fills the table with the last offset of each key, from `dirty_from` on. Returns `end_offset`, or the
        offset of the first batch that was left out because the table was full."""
        transactions = self._new_transactions()
        for segment in self._segments_from(self.dirty_from):
            for header, batch in self._batches(segment, transactions):
                if header.is_control:
                    _end_transaction(header, batch, transactions)
                    continue
                if transactions.is_aborted(header) or header.next_offset <= self.dirty_from:
                    continue
                if table.is_full:
                    return header.base_offset
                columns = _decode_or_none(batch)
                if columns is not None:
                    table.note(columns)
        return self.end_offset

    def _find_last_of_producers(self) -> dict[int, int]:
        """Returns, by producer id, the last offset of the producer's last batch, or of its last marker if that has
        a newer epoch: compaction keeps it. Ignores later segments, whose batches may still be lost or truncated."""
        last: dict[int, tuple[int, int]] = {}
        for segment in self.sources:
            for _, header in segment.headers():
                known, epoch = header.producer_id, header.producer_epoch
                if known in self.producers and not (header.is_control and known in last and last[known][0] == epoch):
                    last[known] = epoch, header.last_offset
        return {known: offset for known, (_, offset) in last.items()}

    def _new_transactions(self) -> CleanedTransactions:
        transactions = CleanedTransactions()
        transactions.add_aborted(self.aborted_later)
        return transactions

    def _batches(self, segment: Segment, transactions: CleanedTransactions) -> Iterator[tuple[BatchHeader, Buffer]]:
        """Adds the aborted transactions that overlap a segment to `transactions`; yields the segment's batches."""
        number = self.sources.index(segment)
        end = self.sources[number + 1].base_offset if number + 1 < len(self.sources) else self.end_offset
        lists = (source.aborted for source in self.sources[number:])
        transactions.add_aborted(aborted_between(lists, segment.base_offset, end))
        for _, header, batch in segment.batches():
            yield header, batch

    def _segments_from(self, offset: int) -> Iterator[Segment]:
        for segment, following in zip(self.sources, [*self.sources[1:], None], strict=True):
            if following is None or following.base_offset > offset:
                yield segment

    def _groups(self, clean_to: int) -> Iterator[list[Segment]]:
        """Yields lists of segments that start below the offset `clean_to`; each list is merged into one segment."""
        group: list[Segment] = []
        size = 0
        ends = [*(segment.base_offset for segment in self.sources[1:]), self.end_offset]
        for segment, end in zip(self.sources, ends, strict=True):
            if segment.base_offset >= clean_to:
                break
            fits = size + segment.size <= self.settings.segment_bytes
            if group and (not fits or end - group[0].base_offset > INT_MAX):
                yield group
                group, size = [], 0
            group.append(segment)
            size += segment.size
        if group:
            yield group

    def _rewrite(
        self, group: Sequence[Segment], table: KeyTable, transactions: CleanedTransactions, result: Result
    ) -> None:
        base = group[0].base_offset
        result.replaced[base] = [segment.base_offset for segment in group]
        fresh = Segment(self.disk, self.folder, base, CLEANED)
        try:
            fresh.cut(0)  # an interrupted run may have left a file
            if any(segment.aborted.count for segment in group):
                fresh.aborted.make()  # must exist to replace the old one
            for segment in group:
                for header, batch in self._batches(segment, transactions):
                    kept: Buffer | None
                    if header.is_control:
                        kept = self._keep_marker(header, batch, transactions, fresh.aborted)
                    elif transactions.is_aborted(header):
                        result.records_before += header.count
                        kept = self._empty_batch(header)
                    else:
                        kept = self._filter(header, batch, table, result)
                    if kept is not None:
                        position, interval = fresh.size, self.settings.index_interval_bytes
                        base, last, latest_ms = header.base_offset, header.last_offset, header.max_timestamp
                        fresh.file.append(kept)
                        fresh.index_batch(position, len(kept), base, last, latest_ms, interval)
                result.bytes_before += segment.size
            result.bytes_after += fresh.size
            fresh.file.sync()
            fresh.aborted.sync()
            fresh.index.seal()
        finally:
            fresh.close()

    def _filter(self, header: BatchHeader, batch: Buffer, table: KeyTable, result: Result) -> Buffer | None:
        columns = _decode_or_none(batch)
        if columns is None or header.base_offset >= result.clean_to:
            return batch  # not in the table: a tombstone's key may still have a value there
        horizon_ms = header.delete_horizon_ms
        drop_tombstones = horizon_ms is not None and horizon_ms <= self.now_ms
        mask = table.mask(columns, drop_tombstones)
        count = mask.count(1)
        result.records_before += columns.count
        result.records_after += count
        if count == 0:
            return self._empty_batch(header)
        if horizon_ms is None and _has_tombstone(columns, mask):
            try:
                kept = [record for record, keep in zip(read_records(batch), mask, strict=True) if keep]
                return self._with_horizon(header, kept)
            except InvalidRecord:
                pass  # timestamp too far from the horizon to be encoded: keep these tombstones
        if count == columns.count:
            return batch
        return select_records(batch, columns, mask, keep_last_offset=True)

    def _keep_marker(
        self, header: BatchHeader, batch: Buffer, transactions: CleanedTransactions, aborted: AbortedList
    ) -> Buffer | None:
        """Returns the marker to keep, or None. A marker is removed delete.retention.ms after the last batch of its
        transaction (KIP-534), unless only the marker preserves the producer's epoch, which fences older producers."""
        is_needed, transaction = _end_transaction(header, batch, transactions)
        if transaction is not None:
            aborted.add(transaction)
        horizon_ms = header.delete_horizon_ms
        if is_needed or self.last_of_producers.get(header.producer_id) == header.last_offset:
            return batch
        if horizon_ms is not None:
            return batch if horizon_ms > self.now_ms else None
        try:
            return self._with_horizon(header, read_records(batch))
        except InvalidRecord:
            return batch  # as for tombstones

    def _empty_batch(self, header: BatchHeader) -> Buffer | None:
        """Returns an empty batch that preserves the producer's last sequence; None if a later batch does."""
        if self.last_of_producers.get(header.producer_id) != header.last_offset:
            return None
        return assemble(
            b"",
            count=0,
            attributes=header.attributes & ~CODEC_MASK,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            leader_epoch=header.leader_epoch,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )

    def _with_horizon(self, header: BatchHeader, records: list[Record]) -> Buffer:
        """Returns a batch of these records whose delete horizon is delete.retention.ms from now (KIP-534)."""
        return build_batch(
            records,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            leader_epoch=header.leader_epoch,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            keep_offsets=True,
            log_append_time=header.is_log_append_time,
            delete_horizon_ms=min(self.now_ms + self.settings.delete_retention_ms, LONG_MAX),
        )

    def install(self, log: Log, result: Result, then: Callable[[Outcome], None] = ignore_outcome) -> None:
        """Schedules the replacement of the old segments by the new segments, as a disk job of the log.

        `then` is called with the outcome: True if the segments were replaced, False if an old segment no longer
        exists, or an error. After the error TornLog the log must not be used.
        """
        wanted = [base for bases in result.replaced.values() for base in bases]
        first = -1

        def begin() -> Work:
            nonlocal first
            first = _find_run(wanted, [segment.base_offset for segment in log.segments[:-1]])
            if first < 0:
                return lambda: self.discard(result)
            try:
                prepare = log.begin_replacement(first, len(wanted), self.end_offset)
            except StorageError as error:
                failure = error
                return lambda: self._discard_and_raise(result, failure)
            return lambda: self._swap(prepare, result)

        def end(outcome: Outcome) -> None:
            if first >= 0:
                log.end_replacement(first, len(wanted), outcome.value, result.clean_to)
            then(outcome if outcome.error is not None else Outcome(first >= 0))

        log.io.add(begin, end)

    def _discard_and_raise(self, result: Result, error: StorageError) -> None:
        """Deletes the new segments, whose file names the next compaction uses too; then raises `error`."""
        self.discard(result)
        raise error

    def _swap(self, prepare: Work, result: Result) -> list[Segment]:
        """Calls `prepare` (made by Log.begin_replacement), replaces the old segment files with the compacted files
        in `result`, and returns the new segments. Runs on a thread; readers still have the old files open."""
        names = set(self.disk.names(self.folder))
        for base in result.replaced:
            # Once the manifest is durable the old segments are removed, so their replacements must exist by now.
            if f"{base:020d}.log{CLEANED}" not in names:
                raise StorageError(f"{self.folder} was not compacted: the new segment {base} is missing")
        text = json.dumps(list(result.replaced.items())).encode()
        try:
            prepare()
            self.disk.store(f"{self.folder}/{MANIFEST}", text, durable=True)
        except StorageError:
            # A manifest on disk would make the next recovery remove old segments whose replacements are discarded.
            self.disk.remove(f"{self.folder}/{MANIFEST}")
            self.discard(result)
            raise
        try:
            finish_swap(self.disk, self.folder)
            fresh = [Segment(self.disk, self.folder, base) for base in result.replaced]
            for segment in fresh:
                segment.created_ms = self.now_ms
                segment.aborted.measure(segment.base_offset)
        except StorageError as error:
            raise TornLog(f"{self.folder} could not be compacted: the swap of segments failed: {error}") from error
        return fresh

    def discard(self, result: Result) -> None:
        for base in result.replaced:
            Segment(self.disk, self.folder, base, CLEANED).remove()


def _find_run(wanted: list[int], here: list[int]) -> int:
    """Returns the index at which `wanted` occurs as a contiguous part of `here`; -1 if it does not."""
    if not wanted or wanted[0] not in here:
        return -1
    first = here.index(wanted[0])
    return first if here[first : first + len(wanted)] == wanted else -1


def _end_transaction(
    header: BatchHeader, batch: Buffer, transactions: CleanedTransactions
) -> tuple[bool, AbortedTransaction | None]:
    """Returns whether to keep a control batch, and the transaction that it aborts, if any (see
    CleanedTransactions.end). A control batch that is not a transaction marker is always kept."""
    marker = read_marker(batch) if header.producer_id >= 0 else None
    return (True, None) if marker is None else transactions.end(header, marker)


def _decode_or_none(batch: Buffer) -> Columns | None:
    """Returns the batch's columns; None if its records cannot be decoded (built by a faulty producer)."""
    try:
        return decode_columns(batch)
    except PenstockError:
        return None


def _has_tombstone(columns: Columns, mask: bytearray) -> bool:
    return any(keep and length < 0 for keep, length in zip(mask, columns.value_len, strict=True))


def finish_swap(disk: Disk, folder: str) -> None:
    """Completes the swap that the compaction manifest lists, from any intermediate state. Recovery calls this too."""
    text = disk.load(f"{folder}/{MANIFEST}")
    if text is None:
        return
    names = set(disk.names(folder))
    try:
        swaps = json.loads(text)
    except ValueError as error:
        raise StorageError(f"{folder}/{MANIFEST} is damaged: {error}") from error
    for base, old in swaps:
        for gone in old:
            if gone != base:
                Segment(disk, folder, gone).remove()
        for kind in ("index", "aborted", "log"):
            name = f"{base:020d}.{kind}"
            if name + CLEANED in names:
                disk.rename(f"{folder}/{name}{CLEANED}", f"{folder}/{name}")
    disk.sync_folder(folder)  # the renames must be durable before the manifest is removed
    disk.remove(f"{folder}/{MANIFEST}")

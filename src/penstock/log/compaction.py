"""Compaction: closed segments are rewritten so that only the last record of each key is left.

What was aborted goes. The markers of transactions stay as long as anything of their transaction does, and for
delete.retention.ms after that, so that whoever has begun to read gets to see them.

Runs on a thread, on files of its own. The new segments lie beside the old ones until a manifest, written once they
are all synced, says which replaces which: from then on the change is finished, if need be by the next start.
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
from penstock.log.io_queue import Outcome, Work, nothing_follows
from penstock.log.keytable import KeyTable
from penstock.log.log import Log
from penstock.log.removal import TornLog
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings
from penstock.log.transactions import AbortedTransaction, Cleaning
from penstock.records.batch import BatchHeader, assemble
from penstock.records.build import Record, build_batch, read_marker, read_records
from penstock.records.columns import Columns, decode_columns, select_records
from penstock.records.layout import CODEC_MASK
from penstock.wire.schema import Buffer

MANIFEST: Final = "swap"
CLEANED: Final = ".cleaned"


def plan(log: Log, now_ms: int, limit: int, keys_max: int, secret: bytes) -> "Job | None":
    """What to compact now, if it is worth it. Only what is synced, decided, and below the offset `limit` counts."""
    settings = log.settings
    if not settings.compacted:
        return None
    limit = min(log.stable_end(limit), log.decided_to, log.checkpoint.synced_to)
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
        sources=[segment.twin() for segment in chosen],
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
    """New segments by base offset, and the old ones that each replaces."""

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
    """Those that are still remembered."""
    aborted_later: list[AbortedTransaction]
    """Begun before `end_offset`, aborted behind it."""
    last_of_producers: dict[int, int] = field(default_factory=dict)
    """Where the batch ends that tells a producer's epoch and sequence."""

    def run(self) -> Result:
        """Write the new segments. On a thread: touches nothing that the event loop owns."""
        result = Result(clean_to=0)
        try:
            table = KeyTable(self.keys_max, self.secret)
            result.clean_to = self._learn(table)
            if self.producers:
                self.last_of_producers = self._find_last_of_producers()
            transactions = self._transactions()
            for group in self._groups(result.clean_to):
                self._rewrite(group, table, transactions, result)
            return result
        except StorageError:
            self.discard(result)  # or a full disk would stay full
            raise
        finally:
            for segment in self.sources:
                segment.close()

    def _learn(self, table: KeyTable) -> int:
        """Fill the table with the last offset of every key in what is new; the offset up to which it knows."""
        transactions = self._transactions()
        for segment in self._from(self.dirty_from):
            for header, batch in self._batches(segment, transactions):
                if header.is_control:
                    _end_transaction(header, batch, transactions)
                    continue
                if transactions.is_aborted(header) or header.next_offset <= self.dirty_from:
                    continue
                if table.is_full:
                    return header.base_offset
                columns = _opened(batch)
                if columns is not None:
                    table.note(columns)
        return self.end_offset

    def _find_last_of_producers(self) -> dict[int, int]:
        """The last batch of each producer, or the last marker if that has a newer epoch.

        Not of the whole log but of what is compacted: what comes after it may yet be lost, or taken back.
        """
        last: dict[int, tuple[int, int]] = {}
        for segment in self.sources:
            for _, header in segment.headers():
                known, epoch = header.producer_id, header.producer_epoch
                if known in self.producers and not (header.is_control and known in last and last[known][0] == epoch):
                    last[known] = epoch, header.last_offset
        return {known: offset for known, (_, offset) in last.items()}

    def _transactions(self) -> Cleaning:
        transactions = Cleaning()
        transactions.expect(self.aborted_later)
        return transactions

    def _batches(self, segment: Segment, transactions: Cleaning) -> Iterator[tuple[BatchHeader, Buffer]]:
        """All batches of a segment; what was aborted in it is expected first, wherever its marker is."""
        number = self.sources.index(segment)
        end = self.sources[number + 1].base_offset if number + 1 < len(self.sources) else self.end_offset
        lists = (source.aborted for source in self.sources[number:])
        transactions.expect(aborted_between(lists, segment.base_offset, end))
        for _, header, batch in segment.batches():
            yield header, batch

    def _from(self, offset: int) -> Iterator[Segment]:
        for segment, following in zip(self.sources, [*self.sources[1:], None], strict=True):
            if following is None or following.base_offset > offset:
                yield segment

    def _groups(self, clean_to: int) -> Iterator[list[Segment]]:
        """Neighbours that fit into one segment together."""
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

    def _rewrite(self, group: Sequence[Segment], table: KeyTable, transactions: Cleaning, result: Result) -> None:
        base = group[0].base_offset
        result.replaced[base] = [segment.base_offset for segment in group]
        fresh = Segment(self.disk, self.folder, base, CLEANED)
        try:
            fresh.cut(0)  # a run that was cut short may have left something
            if any(segment.aborted.count for segment in group):
                fresh.aborted.make()  # there must be one to take the place of the old one
            for segment in group:
                for header, batch in self._batches(segment, transactions):
                    kept: Buffer | None
                    if header.is_control:
                        kept = self._keep_marker(header, batch, transactions, fresh.aborted)
                    elif transactions.is_aborted(header):
                        result.records_before += header.count
                        kept = self._trace(header)
                    else:
                        kept = self._filter(header, batch, table, result)
                    if kept is not None:
                        fresh.append(
                            kept,
                            header.base_offset,
                            header.last_offset,
                            header.max_timestamp,
                            self.settings.index_interval_bytes,
                        )
                result.bytes_before += segment.size
            result.bytes_after += fresh.size
            fresh.file.sync()
            fresh.aborted.sync()
            fresh.index.seal()
        finally:
            fresh.close()

    def _filter(self, header: BatchHeader, batch: Buffer, table: KeyTable, result: Result) -> Buffer | None:
        columns = _opened(batch)
        if columns is None or header.base_offset >= result.clean_to:
            return batch  # what the table knows nothing of stays: a tombstone's key may still have a value there
        horizon_ms = header.delete_horizon_ms
        drop_tombstones = horizon_ms is not None and horizon_ms <= self.now_ms
        mask = table.mask(columns, drop_tombstones)
        count = mask.count(1)
        result.records_before += columns.count
        result.records_after += count
        if count == 0:
            return self._trace(header)
        if horizon_ms is None and _has_tombstone(columns, mask):
            try:
                kept = [record for record, keep in zip(read_records(batch), mask, strict=True) if keep]
                return self._with_horizon(header, kept)
            except InvalidRecord:
                pass  # a time too far from now to be written beside it: these tombstones stay
        if count == columns.count:
            return batch
        return select_records(batch, columns, mask, keep_last_offset=True)

    def _keep_marker(
        self, header: BatchHeader, batch: Buffer, transactions: Cleaning, aborted: AbortedList
    ) -> Buffer | None:
        """A marker goes some time after the last batch of its transaction (KIP-534), but not if only it tells the
        epoch of a producer: whoever has an older one must go on being fenced."""
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

    def _trace(self, header: BatchHeader) -> Buffer | None:
        """An empty batch in the place of a producer's last one: its sequence must not be forgotten."""
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
        """A batch of these records that says when its tombstones or its marker may go, counted from now (KIP-534)."""
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

    def install(self, log: Log, result: Result, then: Callable[[Outcome], None] = nothing_follows) -> None:
        """Put the new segments in the place of the old ones, by a job of the log's queue.

        `then` gets whether that was done: not if some of the old ones are gone. TornLog: the log must not be used any
        more.
        """
        wanted = [base for bases in result.replaced.values() for base in bases]
        first = -1

        def begin() -> Work:
            nonlocal first
            first = _find(wanted, [segment.base_offset for segment in log.segments[:-1]])
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
        """Removes the new segments before the failure is reported: the next run gives its segments the same names."""
        self.discard(result)
        raise error

    def _swap(self, prepare: Work, result: Result) -> list[Segment]:
        """Exchange the files; the new segments. On a thread: readers go on with the old ones, which are open."""
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
            # It may be there, and would have the next start remove segments in favour of others that are not.
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
            raise TornLog(f"{self.folder} could not be compacted to the end: {error}") from error
        return fresh

    def discard(self, result: Result) -> None:
        for base in result.replaced:
            Segment(self.disk, self.folder, base, CLEANED).remove()


def _find(wanted: list[int], here: list[int]) -> int:
    """The position of a list in another one; -1 if it is not there."""
    if not wanted or wanted[0] not in here:
        return -1
    first = here.index(wanted[0])
    return first if here[first : first + len(wanted)] == wanted else -1


def _end_transaction(
    header: BatchHeader, batch: Buffer, transactions: Cleaning
) -> tuple[bool, AbortedTransaction | None]:
    """As Cleaning.end. A control batch that ends no transaction is always needed: who knows what for."""
    marker = read_marker(batch) if header.producer_id >= 0 else None
    return (True, None) if marker is None else transactions.end(header, marker)


def _opened(batch: Buffer) -> Columns | None:
    """None for a batch that cannot be read inside: a producer sealed nonsense. It stays as it is."""
    try:
        return decode_columns(batch)
    except PenstockError:
        return None


def _has_tombstone(columns: Columns, mask: bytearray) -> bool:
    return any(keep and length < 0 for keep, length in zip(mask, columns.value_len, strict=True))


def finish_swap(disk: Disk, folder: str) -> None:
    """Do what the manifest says, from wherever it was left. Recovery calls this too."""
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
    disk.sync_folder(folder)  # the renames must not come undone once the manifest is gone
    disk.remove(f"{folder}/{MANIFEST}")

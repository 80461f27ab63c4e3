"""Follower side of replication: fetch position, truncation after epoch divergence, and high watermark."""

from typing import Final, NamedTuple

from penstock.foundation.errors import PenstockError, StorageError
from penstock.log.epochs import NO_EPOCH
from penstock.log.log import Log
from penstock.records.batch import read_header
from penstock.wire.schema import Buffer


class Position(NamedTuple):
    """Fetch offset, and the leader epoch of the last record before it (KIP-595)."""

    offset: int
    epoch: int


class Following:
    """A follower replica's log: applies fetched records and truncations."""

    def __init__(self, log: Log, high_watermark: int) -> None:
        self.log: Final = log
        self.high_watermark = min(high_watermark, log.end_offset)

    @property
    def position(self) -> Position:
        end = self.log.end_offset
        return Position(end, self.log.epochs.at(end - 1) if end > self.log.start_offset else NO_EPOCH)

    def take(self, records: Buffer, leader_mark: int, leader_start: int, now_ms: int) -> None:
        """Appends the records of a Fetch response, and adopts the leader's high watermark and log start offset."""
        log = self.log
        if records:
            log.append_replica(records, now_ms)
        self.high_watermark = max(self.high_watermark, min(leader_mark, log.end_offset))
        if leader_start > log.start_offset:
            log.trim(min(leader_start, log.end_offset))

    def diverged_at(self, epoch: int, end: int) -> int:
        """Returns the offset to truncate to after epoch divergence: in the leader's log, `epoch` ends at `end`. If
        this log has no such epoch, its previous epoch may end later than in the leader's log; then the next fetch
        detects the remaining divergence."""
        log = self.log
        known, known_end = log.epochs.end_offset_for(epoch, log.end_offset)
        target = min(known_end if known != NO_EPOCH else end, log.end_offset)
        if known in (epoch, NO_EPOCH):
            target = min(target, end)
        return max(target, log.segments[0].base_offset)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drops all records and restarts the log at the leader's log start offset. Waits for the disk."""
        self.log.restart(offset, now_ms)
        self.high_watermark = offset

    def starts_inside_batch(self, records: Buffer, leader_start: int) -> bool:
        """Whether the leader's log start offset lies inside the first batch of `records`, and this log has no
        records of that batch: this log is empty, or ends before the leader's log start offset."""
        if not records or (self.log.size_bytes and leader_start < self.log.end_offset):
            return False
        header = read_header(records)
        return header.base_offset < self.log.end_offset <= header.last_offset

    def restart_inside(self, records: Buffer, leader_mark: int, leader_start: int, now_ms: int) -> None:
        """Replaces the log by `records`, whose first batch contains the leader's log start offset `leader_start`.
        `leader_mark`: the leader's high watermark. Waits for the disk."""
        self.restart_at(read_header(records).base_offset, now_ms)
        try:
            self.take(records, leader_mark, leader_start, now_ms)
        except PenstockError as error:
            raise StorageError(f"{self.log.folder} cannot start with the leader's first batch: {error}") from error

    def truncate(self, offset: int, now_ms: int) -> None:
        """Truncates the log to `offset`. Waits for the disk."""
        self.log.truncate(offset, now_ms)
        self.high_watermark = min(self.high_watermark, self.log.end_offset)

"""Following a leader: where a log goes on, what it takes back, and how far it is committed."""

from typing import Final, NamedTuple

from penstock.foundation.errors import PenstockError, StorageError
from penstock.log.epochs import NO_EPOCH
from penstock.log.log import Log
from penstock.records.batch import read_header
from penstock.wire.schema import Buffer


class Position(NamedTuple):
    """What a follower asks for: from where on, and the epoch of what it has before that (KIP-595)."""

    offset: int
    epoch: int


class Following:
    """One log that is to become its leader's."""

    def __init__(self, log: Log, high_watermark: int) -> None:
        self.log: Final = log
        self.high_watermark = min(high_watermark, log.end_offset)

    @property
    def position(self) -> Position:
        end = self.log.end_offset
        return Position(end, self.log.epochs.at(end - 1) if end > self.log.start_offset else NO_EPOCH)

    def take(self, records: Buffer, leader_mark: int, leader_start: int, now_ms: int) -> None:
        """The leader's answer: more of its log, how far that is committed, and where it begins by now."""
        log = self.log
        if records:
            log.append_replica(records, now_ms)
        self.high_watermark = max(self.high_watermark, min(leader_mark, log.end_offset))
        if leader_start > log.start_offset:
            log.trim(min(leader_start, log.end_offset))

    def diverged_at(self, epoch: int, end: int) -> int:
        """The leader's log is another one: there, `epoch` ended at `end`. From where on this one is to be truncated.

        An epoch that this log does not know may have ended earlier than the one before it here: then what is left is
        compared once more.
        """
        log = self.log
        known, known_end = log.epochs.end_of(epoch, log.end_offset)
        target = min(known_end if known != NO_EPOCH else end, log.end_offset)
        if known in (epoch, NO_EPOCH):
            target = min(target, end)
        return max(target, log.segments[0].base_offset)

    def start_over(self, offset: int, now_ms: int) -> None:
        """The leader has nothing any more of what this log would need next: begin where the leader's begins. Waits
        for the disk, as `cut` does."""
        self.log.restart(offset, now_ms)
        self.high_watermark = offset

    def begins_inside(self, records: Buffer, leader_start: int) -> bool:
        """Whether the leader's log was trimmed in the middle of a batch, is sent from that batch on, and has nothing
        of what this log has: that is empty, or all of it lies before the leader's start."""
        if not records or (self.log.size_bytes and leader_start < self.log.end_offset):
            return False
        header = read_header(records)
        return header.base_offset < self.log.end_offset <= header.last_offset

    def start_inside(self, records: Buffer, leader_mark: int, leader_start: int, now_ms: int) -> None:
        """Begin with the whole batch that the leader's log begins in, and drop what was before. Waits for the disk,
        as `cut` does."""
        self.start_over(read_header(records).base_offset, now_ms)
        try:
            self.take(records, leader_mark, leader_start, now_ms)
        except PenstockError as error:
            raise StorageError(f"{self.log.folder} cannot begin with what its leader sent: {error}") from error

    def cut(self, offset: int, now_ms: int) -> None:
        """Take back everything from an offset on."""
        self.log.truncate(offset, now_ms)
        self.high_watermark = min(self.high_watermark, self.log.end_offset)

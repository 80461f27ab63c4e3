"""Copies committed delayed messages from the topic to the companion log, which stores them until they are due."""

from bisect import bisect_left
from typing import Final

from penstock.broker.delays.delayed_batches import DelayedBatches
from penstock.delays.commands import Copy, Message
from penstock.delays.machine import DelayMachine
from penstock.foundation.clock import Clock
from penstock.log.transactions import AbortedTransaction
from penstock.records.batch import BatchHeader, batches
from penstock.records.columns import Columns
from penstock.records.delayed import find_delayed
from penstock.replication.partition import Partition

READ_BYTES: Final = 256 << 10
"""Maximum number of bytes of the topic to scan per call, so that the event loop is not blocked."""
COPY_BYTES_MAX: Final = 16 << 10
"""Maximum bytes of a batch in the companion log. It is small, because a whole batch is read to deliver one
message."""
MESSAGES_MAX: Final = 1000
"""Maximum number of messages copied per call; the rest of a larger batch is copied by the next call."""
GROWTH_MAX: Final = 10_000


class Copier:
    """Finds delayed records to copy. Scans only up to the last stable offset, so aborted records are not copied."""

    def __init__(
        self, partition: Partition, machine: DelayMachine, delayed_batches: DelayedBatches, clock: Clock
    ) -> None:
        self._partition = partition
        self._machine = machine
        self._delayed_batches = delayed_batches
        self._clock = clock
        self.scanned_to = -1
        self._growth: list[tuple[int, int]] = []
        """High watermarks and when each was reached, while an open transaction keeps records from being copied."""

    def rewind(self) -> None:
        """Restarts the scan at the last copied offset, because copying failed."""
        self.scanned_to = -1

    @property
    def has_more(self) -> bool:
        return self.scanned_to < self._partition.last_stable_offset

    def note_growth(self) -> None:
        """Records the current time for the current high watermark. A message's relative delay starts when the high
        watermark passes the message, not when its transaction commits."""
        mark, stable = self._partition.high_watermark, self._partition.last_stable_offset
        if stable >= mark:
            self._growth = []
        elif len(self._growth) < GROWTH_MAX and (not self._growth or self._growth[-1][0] < mark):
            self._growth.append((mark, self._clock.now_ms()))

    def _committed_ms(self, offset: int, now_ms: int) -> int:
        at = bisect_left(self._growth, (offset + 1, 0))
        return self._growth[at][1] if at < len(self._growth) else now_ms

    def next(self) -> list[Copy]:
        """Returns the commands that copy the delayed messages in the next READ_BYTES of the topic. Raises ColdRead if
        a thread must first read or decode them."""
        log = self._partition.log
        at = max(self.scanned_to, self._machine.copied_to, log.start_offset)
        end = self._partition.last_stable_offset
        if at >= end:
            self.scanned_to = max(self.scanned_to, at)
            return []
        data = log.read(at, READ_BYTES, end)
        view, now_ms = memoryview(data), self._clock.now_ms()
        self._delayed_batches.check(log)
        aborted = log.aborted_between(at, end)
        commands: list[Copy] = []
        messages: list[Message] = []
        size, copied, scanned_to = 0, 0, at
        for position, header in batches(data):
            batch = view[position : position + header.size_bytes]
            scanned_to = header.next_offset
            if scanned_to <= at:
                continue
            delayed = self._delayed_batches.of_batch(batch, header, log)
            if delayed is False or _is_aborted(header, aborted):
                continue
            columns = delayed if isinstance(delayed, Columns) else self._delayed_batches.decode(batch, header, log)
            for found in find_delayed(columns, at):
                if copied >= MESSAGES_MAX:
                    scanned_to = found.offset
                    break
                due_ms = found.delivery_time.due_ms(self._committed_ms(found.offset, now_ms))
                if size + len(found.raw) > COPY_BYTES_MAX and messages:
                    commands.append(Copy(messages, found.offset, now_ms))
                    messages, size = [], 0
                messages.append(Message(found.offset, due_ms, found.timestamp_ms, found.key, found.raw))
                size += len(found.raw)
                copied += 1
            if copied >= MESSAGES_MAX:
                break
        self.scanned_to = scanned_to if scanned_to > at else end
        if messages:
            commands.append(Copy(messages, self.scanned_to, now_ms))
        return commands


def _is_aborted(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in aborted
    )

"""Delayed messages found in the topic once they are committed, to be kept in the companion log."""

from bisect import bisect_left
from typing import Final

from penstock.broker.delays.delayed_batches import Marks
from penstock.delays.commands import Copy, Message
from penstock.delays.machine import DelayMachine
from penstock.foundation.clock import Clock
from penstock.log.transactions import AbortedTransaction
from penstock.records.batch import BatchHeader, batches
from penstock.records.columns import Columns
from penstock.records.delayed import find_delayed
from penstock.replication.partition import Partition

READ_BYTES: Final = 256 << 10
"""Looked at at a time: between two looks the event loop does other things."""
COPY_BYTES_MAX: Final = 16 << 10
"""Kept as one batch: to deliver one of its messages all of it is read."""
MESSAGES_MAX: Final = 1000
"""Copied at a time: the rest of a batch with more is looked at next."""
GROWTH_MAX: Final = 10_000


class Copier:
    """Looks at the topic from where it stopped, up to the last stable offset: what was aborted is never copied."""

    def __init__(self, partition: Partition, machine: DelayMachine, marks: Marks, clock: Clock) -> None:
        self._partition = partition
        self._machine = machine
        self._marks = marks
        self._clock = clock
        self.looked_to = -1
        self._growth: list[tuple[int, int]] = []
        """While an open transaction keeps records from being copied: how far the log was committed when."""

    def rewind(self) -> None:
        """What was to be copied was not."""
        self.looked_to = -1

    @property
    def has_more(self) -> bool:
        return self.looked_to < self._partition.last_stable_offset

    def note_growth(self) -> None:
        """What is relative counts from when it was taken in, however long its transaction stays open."""
        mark, stable = self._partition.high_watermark, self._partition.last_stable_offset
        if stable >= mark:
            self._growth = []
        elif len(self._growth) < GROWTH_MAX and (not self._growth or self._growth[-1][0] < mark):
            self._growth.append((mark, self._clock.now_ms()))

    def _taken_in_ms(self, offset: int, now_ms: int) -> int:
        at = bisect_left(self._growth, (offset + 1, 0))
        return self._growth[at][1] if at < len(self._growth) else now_ms

    def next(self) -> list[Copy]:
        """What is to be kept of the next piece. Raises ColdRead."""
        log = self._partition.log
        at = max(self.looked_to, self._machine.copied_to, log.start_offset)
        end = self._partition.last_stable_offset
        if at >= end:
            self.looked_to = max(self.looked_to, at)
            return []
        data = log.read(at, READ_BYTES, end)
        view, now_ms = memoryview(data), self._clock.now_ms()
        self._marks.check(log)
        aborted = log.aborted_between(at, end)
        commands: list[Copy] = []
        messages: list[Message] = []
        size, copied, looked_to = 0, 0, at
        for place, header in batches(data):
            batch = view[place : place + header.size_bytes]
            looked_to = header.next_offset
            if looked_to <= at:
                continue
            marked = self._marks.of_batch(batch, header, log)
            if marked is False or _is_aborted(header, aborted):
                continue
            columns = marked if isinstance(marked, Columns) else self._marks.decode(batch, header, log)
            for found in find_delayed(columns, at):
                if copied >= MESSAGES_MAX:
                    looked_to = found.offset
                    break
                due_ms = found.delivery_time.due_ms(self._taken_in_ms(found.offset, now_ms))
                if size + len(found.raw) > COPY_BYTES_MAX and messages:
                    commands.append(Copy(messages, found.offset, now_ms))
                    messages, size = [], 0
                messages.append(Message(found.offset, due_ms, found.timestamp_ms, found.key, found.raw))
                size += len(found.raw)
                copied += 1
            if copied >= MESSAGES_MAX:
                break
        self.looked_to = looked_to if looked_to > at else end
        if messages:
            commands.append(Copy(messages, self.looked_to, now_ms))
        return commands


def _is_aborted(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
        for entry in aborted
    )

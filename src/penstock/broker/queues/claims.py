"""Claims: acquire and acknowledge messages of a queue by offset, on partitions led by this broker.

For clients, such as Spark, that read a queue's topic and then acquire the messages they choose: see queues/claims.py.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple

from penstock.broker.queues.message_reader import FreshMessages, Window
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.pending_reply import PendingReply
from penstock.foundation.errors import InvalidRequest
from penstock.log.disk import ColdRead
from penstock.queues.commands import UNKNOWN, Acknowledge, Acknowledgement, AckType, Acquired, Claim, Claimed, Trimmed
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.errors import AlreadyFinished, NotHeld
from penstock.queues.records import DeliveryRange
from penstock.queues.settings import DEFAULTS, DeliverySettings

FRESH_MAX: Final = 1000
"""Maximum number of never-delivered messages per Claim command; in a FIFO queue each needs its own state record."""
ITEMS_MAX: Final = 500
"""Maximum number of ranges that one Acknowledge command contains, so that its records fit into one batch."""

Range = tuple[int, int]


class ClaimSettings(NamedTuple):
    """The share group for which messages are claimed, and its delivery settings."""

    group: str
    settings: DeliverySettings = DEFAULTS
    delay_ms: int | None = None
    """Delay, in milliseconds, of messages without a delay header; None if all messages are due at once."""


class Survey(NamedTuple):
    """One page of a share group's delivery ranges in a partition: messages delivered before and not finished."""

    ranges: tuple[DeliveryRange, ...]
    undelivered_from: int
    """The share group's end offset: messages from this offset on have never been delivered."""
    next_offset: int
    """The offset at which the next page starts; UNKNOWN on the last page."""


class FinishedClaims(NamedTuple):
    finished: int
    lost: tuple[Range, ...]
    """Acknowledged ranges with at least one message that the consumer no longer holds."""


def check_ranges(ranges: Sequence[Range], limit: int) -> tuple[Range, ...]:
    """Returns the ranges as a tuple. Raises InvalidRequest if they are more than `limit`, unsorted or overlapping."""
    if len(ranges) > limit:
        raise InvalidRequest(f"{len(ranges)} offset ranges in one request; at most {limit} are allowed")
    before = -1
    for first, last in ranges:
        if not before < first <= last:
            raise InvalidRequest(f"offset range {first} to {last}: ranges must be sorted and must not overlap")
        before = last
    return tuple(ranges)


def survey(partition: QueuePartition, group: str, offset: int, limit: int, now_ms: int) -> Survey:
    """Returns up to `limit` delivery ranges of a share group, starting at `offset`. A delivery range is a range of
    offsets whose messages were delivered before, are not finished, and have the same delivery state."""
    start = partition.partition.log.start_offset
    delivery = partition.machine.group(group)
    if delivery is None:
        return Survey((), start, UNKNOWN)
    delivery.advance(now_ms)
    found: list[DeliveryRange] = []
    for delivery_range in delivery.between(max(offset, start), delivery.end):
        if len(found) >= limit:
            return Survey(tuple(found), max(delivery.end, start), delivery_range.first)
        found.append(delivery_range)
    return Survey(tuple(found), max(delivery.end, start), UNKNOWN)


class Claimer:
    """Acquires chosen messages of one partition for a consumer; other messages stay as available as before."""

    def __init__(self, partition: QueuePartition, terms: ClaimSettings, threads: Executor) -> None:
        self._partition = partition
        self._terms = terms
        self._threads = threads
        self._window = Window(partition.partition)

    async def claim(self, holder: str, ranges: Sequence[Range], visibility_ms: int) -> list[Acquired]:
        """Acquires the available messages in `ranges` for `holder`, with this visibility timeout. Returns the
        acquired messages, once committed. If it raises PenstockError, some messages may be acquired nevertheless."""
        taken: list[Acquired] = []
        left = tuple(ranges)
        while left:
            command, delivery_end = await self._command(holder, left, visibility_ms)
            reply = await _submit(self._partition, command)
            assert isinstance(reply, Claimed)
            taken += reply.taken
            before = left
            left = tuple((max(first, reply.reached + 1), last) for first, last in left if last > reply.reached)
            if left == before and self._end() == delivery_end:
                break  # no more messages, or the lookahead limit is reached
        return taken

    def _group(self) -> DeliveryState | None:
        return self._partition.machine.group(self._terms.group)

    def _end(self) -> int:
        delivery, start = self._group(), self._partition.partition.log.start_offset
        return start if delivery is None else max(delivery.end, start)

    async def _command(self, holder: str, ranges: tuple[Range, ...], visibility_ms: int) -> tuple[Claim, int]:
        """Returns the Claim command for `ranges`, and the share group's end offset (first never-delivered message)
        at the time when the command was created."""
        terms = self._terms
        while True:
            delivery, end = self._group(), self._end()
            if delivery is not None and delivery.start < self._partition.partition.log.start_offset:
                self._partition.runtime.post(Trimmed(terms.group, self._partition.partition.log.start_offset))
            try:
                ahead = self._read_ahead(end) if ranges[-1][1] >= end else FreshMessages((), end, False)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                continue
            command = Claim(terms.group, holder, ranges, visibility_ms, ahead.fresh, ahead.end, end, terms.settings)
            return command, end

    def _read_ahead(self, end: int) -> FreshMessages:
        """Returns never-delivered messages: those from `end`, the share group's end offset, on. Raises ColdRead if a
        thread must first read or decode them."""
        self._window.seek(end)
        self._window.fill(FRESH_MAX)
        return self._window.fresh(FRESH_MAX, self._terms.delay_ms, with_groups=self._terms.settings.is_fifo)


async def acknowledge(
    partition: QueuePartition, terms: ClaimSettings, holder: str, ranges: Sequence[Range], ack_type: AckType
) -> FinishedClaims:
    """Finishes or releases (`ack_type`) each range. A range with an unfinished message that `holder` does not hold
    is unchanged and returned in `lost`; messages of all other ranges count in `finished`. Safe to repeat."""
    finished = 0
    lost: list[Range] = []
    for at in range(0, len(ranges), ITEMS_MAX):
        chunk = ranges[at : at + ITEMS_MAX]
        items = tuple(Acknowledgement(first, last, holder, ack_type) for first, last in chunk)
        errors = await _submit(partition, Acknowledge(terms.group, items, terms.settings))
        for (first, last), error in zip(chunk, errors, strict=True):
            # The state does not tell which holder has finished a message; it was ours when it was claimed.
            if error is None or type(error) is AlreadyFinished:
                finished += last - first + 1
            elif isinstance(error, NotHeld):
                lost.append((first, last))
            else:
                raise error
    partition.check_waiters(terms.group)
    return FinishedClaims(finished, tuple(lost))


async def _submit(partition: QueuePartition, command: Any) -> Any:
    """Submits a command to the partition's state machine; returns the reply once committed. Raises PenstockError."""
    reply: PendingReply[Any] = PendingReply()
    partition.runtime.submit(command, reply)
    return await reply

"""Messages chosen by their offsets, on partitions that are led here: surveyed, claimed, finished.

It is for who reads a queue's topic, examines its messages, and takes some of them: see queues/claims.py.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple

from penstock.broker.queues.message_reader import Ahead, Window
from penstock.broker.queues.partition import QueuePartition
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.log.disk import ColdRead
from penstock.queues.commands import UNKNOWN, Acknowledge, Acknowledgement, AckType, Acquired, Claim, Claimed, Trimmed
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.errors import AlreadyFinished, NotHeld
from penstock.queues.records import DeliveryRange
from penstock.queues.settings import DEFAULTS, DeliverySettings

AHEAD: Final = 1000
"""Messages that are looked at by one decision: in a FIFO queue each is a record of its own."""
ITEMS_MAX: Final = 500
"""Ranges that are settled by one decision, which is one batch."""

Range = tuple[int, int]


class Terms(NamedTuple):
    """What holds for the group of a claim."""

    group: str
    settings: DeliverySettings = DEFAULTS
    delay_ms: int | None = None
    """Of messages that do not say themselves how long they are delayed; None: all are due at once."""


class Survey(NamedTuple):
    """What of a partition is not finished."""

    ranges: tuple[DeliveryRange, ...]
    looked_to: int
    """From here on all waits."""
    next_offset: int
    """Where to go on; UNKNOWN: these were all."""


class FinishedClaims(NamedTuple):
    finished: int
    lost: tuple[Range, ...]
    """Ranges of which somebody else has a part."""


def check_ranges(ranges: Sequence[Range], limit: int) -> tuple[Range, ...]:
    """Ranges as a command has them. Raises InvalidRequest."""
    if len(ranges) > limit:
        raise InvalidRequest(f"{len(ranges)} ranges of offsets at a time, at most {limit}")
    before = -1
    for first, last in ranges:
        if not before < first <= last:
            raise InvalidRequest(f"offsets {first} to {last}: ranges are in order, and apart from each other")
        before = last
    return tuple(ranges)


def survey(partition: QueuePartition, group: str, offset: int, limit: int, now_ms: int) -> Survey:
    """Delivery ranges of a group from an offset on, so many at most."""
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
    """Takes messages of one partition in hand, looking at those before them on the way."""

    def __init__(self, partition: QueuePartition, terms: Terms, threads: Executor) -> None:
        self._partition = partition
        self._terms = terms
        self._threads = threads
        self._window = Window(partition.partition)

    async def claim(self, holder: str, ranges: Sequence[Range], visibility_ms: int) -> list[Acquired]:
        """Those that could be had, when that is committed. Raises PenstockError: then some may be had, too."""
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
                break  # as far as there are messages, or as many as can be looked at
        return taken

    def _group(self) -> DeliveryState | None:
        return self._partition.machine.group(self._terms.group)

    def _end(self) -> int:
        delivery, start = self._group(), self._partition.partition.log.start_offset
        return start if delivery is None else max(delivery.end, start)

    async def _command(self, holder: str, ranges: tuple[Range, ...], visibility_ms: int) -> tuple[Claim, int]:
        """The next step, and where the group ends before it."""
        terms = self._terms
        while True:
            delivery, end = self._group(), self._end()
            if delivery is not None and delivery.start < self._partition.partition.log.start_offset:
                self._partition.runtime.tell(Trimmed(terms.group, self._partition.partition.log.start_offset))
            try:
                ahead = self._ahead(end) if ranges[-1][1] >= end else Ahead((), end, False)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                continue
            command = Claim(terms.group, holder, ranges, visibility_ms, ahead.fresh, ahead.end, end, terms.settings)
            return command, end

    def _ahead(self, end: int) -> Ahead:
        """The next messages that nobody has looked at. Raises ColdRead."""
        self._window.seek(end)
        self._window.fill(AHEAD)
        return self._window.fresh(AHEAD, self._terms.delay_ms, with_groups=self._terms.settings.is_fifo)


async def acknowledge(
    partition: QueuePartition, terms: Terms, holder: str, ranges: Sequence[Range], ack_type: AckType
) -> FinishedClaims:
    """What the holder has of these is done, or undone. To say it twice does no harm."""
    finished = 0
    lost: list[Range] = []
    for at in range(0, len(ranges), ITEMS_MAX):
        some = ranges[at : at + ITEMS_MAX]
        items = tuple(Acknowledgement(first, last, holder, ack_type) for first, last in some)
        errors = await _submit(partition, Acknowledge(terms.group, items, terms.settings))
        for (first, last), error in zip(some, errors, strict=True):
            # Of what was finished before, nobody knows by whom: it was ours when it was claimed.
            if error is None or type(error) is AlreadyFinished:
                finished += last - first + 1
            elif isinstance(error, NotHeld):
                lost.append((first, last))
            else:
                raise error
    partition.look_soon(terms.group)
    return FinishedClaims(finished, tuple(lost))


async def _submit(partition: QueuePartition, command: Any) -> Any:
    """What the machine says, when it is committed. Raises PenstockError."""
    heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def take(reply: Any) -> None:
        if not heard.done():
            heard.set_result(reply)

    partition.runtime.submit(command, take)
    reply = await heard
    if isinstance(reply, PenstockError):
        raise reply
    return reply

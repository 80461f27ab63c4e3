"""The delivery state of one partition that this broker leads: the one object that both doors to a queue use.

The machine decides who gets what; this reads messages ahead for it, hands out what was acquired when it is committed,
and keeps those who wait until there is something for them.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.broker.queues.message_reader import Back, Message, Window, readable_to
from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.purges import Purges
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import PenstockError
from penstock.log.disk import ColdRead
from penstock.queues.commands import BYTES_MAX, Acknowledge, Acknowledgement, AckType, Acquire, Acquired, Trimmed
from penstock.queues.fifo import window_of
from penstock.queues.machine import QueueMachine
from penstock.queues.messages import MESSAGE_ID, message_id
from penstock.queues.settings import DEFAULTS, DeliverySettings
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime

LOOK_ON: Final = 100
"""Messages that are looked at together where the first ones were for nobody: not due, or of closed groups."""
ROUNDS_MAX: Final = 10
"""Looks in a row; then others have their turn."""
LOOK_AGAIN_MS: Final = 50
UNSEEN: Final = -1

Ranges = tuple[Acquired, ...]
TakeRanges = Callable[[Ranges | PenstockError], None]
TakeMessages = Callable[[list[Delivered] | PenstockError], None]
TakeErrors = Callable[[Sequence[PenstockError | None] | PenstockError], None]


class ReceiveRequest(NamedTuple):
    """What somebody wants of a group, at whatever partition it is."""

    group: str
    holder: str
    max_messages: int
    visibility_ms: int
    settings: DeliverySettings = DEFAULTS
    delay_ms: int = 0
    """Of every message that does not say itself how long it is delayed."""
    max_bytes: int = BYTES_MAX
    whole_ranges: bool = False
    repeat: bool = False
    is_stable: bool = True
    """Whether messages of open transactions wait until these are decided (KIP-98)."""
    is_plain: bool = False
    """Whether all messages are due at once, whatever they say: then their batches need not be opened."""


class Waiter:
    """Somebody who waits for messages, maybe at several partitions: whichever has some first gives them."""

    __slots__ = ("is_busy", "is_open", "missed", "receive_request", "take")

    def __init__(self, receive_request: ReceiveRequest, take: Callable[[list[Delivered]], None]) -> None:
        self.receive_request = receive_request
        self.take = take
        self.is_open = True
        self.is_busy = False
        """Whether a partition is about to give it something: no other need try meanwhile."""
        self.missed: list[Callable[[], None]] = []
        """Partitions that wanted to, and look again if nothing came of it."""

    def ask(self, partition: "QueuePartition", then: Callable[[Any], None]) -> None:
        """Have a partition see what there is."""
        partition.receive(self.receive_request, then)

    def give_back(self, partition: "QueuePartition", found: Any) -> None:
        """What a partition found has come too late."""
        partition.undo(self.receive_request.group, found)


class _Group:
    """One group here: what is read ahead for it, and who waits."""

    __slots__ = ("is_looking", "is_used", "next_due_ms", "parked", "seen", "stop_timer", "ticket", "window")

    def __init__(self, window: Window) -> None:
        self.window = window
        self.parked: dict[Waiter, None] = {}
        self.ticket: int | None = None
        """Of the watch for new messages, while somebody waits."""
        self.stop_timer: Callable[[], None] | None = None
        self.is_looking = False
        self.seen = UNSEEN
        """How far the log was committed when the last look began."""
        self.next_due_ms: int | None = None
        """When the first message is due that was seen and is not."""
        self.is_used = True


class QueuePartition:
    """Made when the partition's machine has read everything back, closed when another broker leads."""

    def __init__(
        self, *, partition: Partition, runtime: StateRuntime, clock: Clock, timer: Timer, threads: Executor
    ) -> None:
        assert isinstance(runtime.machine, QueueMachine)
        self.partition: Final = partition
        self.number: Final = partition.name.partition
        self.runtime: Final = runtime
        self.machine: Final = runtime.machine
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._groups: dict[tuple[str, bool], _Group] = {}
        self._back = Back(partition)
        self.purges: Final = Purges(partition, runtime, self.machine)
        self.is_closed = False

    @property
    def now_ms(self) -> int:
        """The time that deadlines of messages are measured by."""
        return self.runtime.now_ms

    def _group(self, receive_request: ReceiveRequest) -> _Group:
        key = receive_request.group, receive_request.is_stable
        group = self._groups.get(key)
        if group is None:
            window = Window(self.partition, stable=receive_request.is_stable)
            group = self._groups[key] = _Group(window)
        group.is_used = True
        return group

    # -- acquiring

    def acquire(self, receive_request: ReceiveRequest, then: TakeRanges) -> None:
        """Take messages in hand; which they are is told when that is committed. Nothing, if there are none now."""
        self._look(receive_request, then, 0)

    def _look(self, receive_request: ReceiveRequest, then: TakeRanges, rounds: int) -> None:
        group = self._group(receive_request)
        try:
            command = self._next_command(receive_request, group, rounds)
        except ColdRead as cold:
            self._warm(cold, lambda: self._look(receive_request, then, rounds), then)
            return
        except PenstockError as error:
            then(error)
            return
        if command is None:
            then(())
        else:
            self.runtime.submit(
                command, lambda reply: self._on_acquired(receive_request, then, rounds, command, reply)
            )

    def _next_command(self, receive_request: ReceiveRequest, group: _Group, rounds: int) -> Acquire | None:
        """What to ask the machine; None if there is nothing that it could give. Raises ColdRead."""
        start = self.partition.log.start_offset
        delivery = self.machine.group(receive_request.group)
        if delivery is not None and delivery.start < start:
            self.runtime.tell(Trimmed(receive_request.group, start))
        end = max(start, delivery.end) if delivery is not None else start
        window, settings = group.window, receive_request.settings
        window.seek(end)
        count = window_of(receive_request.max_messages) if settings.is_fifo else receive_request.max_messages
        if rounds:
            count = max(LOOK_ON, count)
        window.fill(count)
        delay_ms = None if receive_request.is_plain else receive_request.delay_ms
        whole_max = settings.in_flight_max if receive_request.whole_ranges else 0
        ahead = window.fresh(count, delay_ms, with_groups=settings.is_fifo, whole_max=whole_max)
        now_ms = self.now_ms
        group.next_due_ms = min([fresh.due_ms for fresh in ahead.fresh]) if ahead.fresh else None
        ready_ms = delivery.ready_at_ms if delivery is not None else None
        is_ready = ready_ms is not None and ready_ms <= now_ms
        is_due = group.next_due_ms is not None and group.next_due_ms <= now_ms
        # Of messages that say themselves when they are due, those behind may be due before.
        has_more = ahead.are_varied and ahead.end < window.limit
        passes_on = not ahead.fresh and ahead.end > end  # what lies there is no message
        if not (is_ready or is_due or has_more or passes_on or receive_request.repeat):
            return None
        return Acquire(
            receive_request.group,
            receive_request.holder,
            receive_request.max_messages,
            receive_request.visibility_ms,
            ahead.fresh,
            ahead.end,
            end,
            receive_request.max_bytes,
            receive_request.whole_ranges,
            has_more,
            receive_request.repeat,
            settings,
        )

    def _on_acquired(
        self, receive_request: ReceiveRequest, then: TakeRanges, rounds: int, command: Acquire, reply: Any
    ) -> None:
        if reply or isinstance(reply, PenstockError):
            then(reply)
            return
        delivery = self.machine.group(receive_request.group)
        has_moved = delivery is not None and delivery.end > command.fresh_from
        if not has_moved or self.is_closed:
            then(())
        elif rounds % ROUNDS_MAX == ROUNDS_MAX - 1:
            self._timer(0, lambda: self._look(receive_request, then, rounds + 1))
        else:
            self._look(receive_request, then, rounds + 1)

    def _warm(self, cold: ColdRead, then: Callable[[], None], refuse: Callable[[PenstockError], None]) -> None:
        """Have something read from the device on a thread, and go on."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)

        def done(warmed: "asyncio.Future[None]") -> None:
            if warmed.cancelled():
                return
            error = warmed.exception()
            if isinstance(error, PenstockError):
                refuse(error)
            else:
                then()

        future.add_done_callback(done)

    # -- messages

    def receive(self, receive_request: ReceiveRequest, then: TakeMessages) -> None:
        """As `acquire`, with the messages themselves."""
        self.acquire(receive_request, lambda ranges: self._on_ranges(receive_request, then, ranges))

    def _on_ranges(self, receive_request: ReceiveRequest, then: TakeMessages, ranges: Ranges | PenstockError) -> None:
        if isinstance(ranges, PenstockError):
            then(ranges)
            return
        window = self._group(receive_request).window
        found: list[Delivered] = []
        missing: list[Acknowledgement] = []
        try:
            for acquired in ranges:
                for offset in range(acquired.first, acquired.last + 1):
                    message = window.message(offset) or self._back.message(offset, stable=receive_request.is_stable)
                    if message is not None:
                        found.append(self.delivered(message, receive_request.holder, acquired))
                    else:  # compaction or retention took it: there is nothing left to be done
                        missing.append(Acknowledgement(offset, offset, receive_request.holder, AckType.DONE))
        except ColdRead as cold:
            self._warm(cold, lambda: self._on_ranges(receive_request, then, ranges), then)
            return
        except PenstockError as error:
            then(error)
            return
        if missing:
            self.runtime.tell(Acknowledge(receive_request.group, tuple(missing), receive_request.settings))
            if not found:  # in a turn of its own: there may be any number of such
                self._timer(0, lambda: self.receive(receive_request, then))
                return
        then(found)

    def delivered(self, message: Message, holder: str, acquired: Acquired) -> Delivered:
        """Returns a message of this partition as receivers see it."""
        offset, timestamp_ms, key, value, headers = message
        known = next((text for name, text in headers if name == MESSAGE_ID and text), None) if headers else None
        return Delivered(
            self.number,
            offset,
            holder,
            message_id(self.partition.topic_id, self.number, offset)
            if known is None
            else known.decode(errors="replace"),
            acquired.count,
            acquired.first_received_ms,
            timestamp_ms,
            key,
            value or b"",
            headers,
            acquired.is_repeat,
        )

    # -- settling

    def acknowledge(self, command: Acknowledge, then: TakeErrors) -> None:
        """Acknowledgements; what became of each is told when it is committed."""
        self.runtime.submit(command, then)
        self.look_soon(command.group)

    def undo(self, group: str, delivered: Sequence[Delivered]) -> None:
        """Nobody was there to take these: they are as if never delivered."""
        undone = [each for each in delivered if not each.is_repeat]
        items = tuple(Acknowledgement(each.offset, each.offset, each.holder, AckType.UNDO) for each in undone)
        if items and not self.is_closed:
            self.acknowledge(Acknowledge(group, items), _ignore)

    # -- waiting

    def park(self, waiter: Waiter) -> None:
        """Give a waiter the first messages that there are for it."""
        group = self._group(waiter.receive_request)
        group.parked[waiter] = None
        if group.ticket is None and not group.is_looking:
            self._look_at(group)  # something may have come since it was looked

    def unpark(self, waiter: Waiter) -> None:
        group = self._groups.get((waiter.receive_request.group, waiter.receive_request.is_stable))
        if group is not None:
            group.parked.pop(waiter, None)
            if not group.parked:
                self._rest(group)

    def look_soon(self, name: str) -> None:
        """Something may be available again."""
        for is_stable in (True, False):
            group = self._groups.get((name, is_stable))
            if group is not None and group.parked:
                if group.is_looking:
                    group.seen = UNSEEN  # whatever comes of that look is out of date
                else:
                    self._look_at(group)

    def _look_at(self, group: _Group) -> None:
        """Soon: what else happens in this turn of the loop comes along."""
        self._rest(group)
        group.is_looking = True
        self._timer(0, lambda: self._serve(group))

    def _serve(self, group: _Group) -> None:
        """Give whoever waits longest what there is."""
        if self.is_closed:
            return
        waiter = next((known for known in group.parked if known.is_open and not known.is_busy), None)
        if waiter is None:
            group.is_looking = False
            for busy in group.parked:
                busy.missed.append(partial(self.look_soon, busy.receive_request.group))
            return
        waiter.is_busy = True
        group.seen = readable_to(self.partition, stable=False)
        waiter.ask(self, partial(self._on_served, group, waiter))

    def _on_served(self, group: _Group, waiter: Waiter, reply: Any) -> None:
        waiter.is_busy = False
        if reply and not isinstance(reply, PenstockError):
            if waiter.is_open:
                waiter.is_open = False
                group.parked.pop(waiter, None)
                waiter.take(reply)
            else:
                waiter.give_back(self, reply)
            self._timer(0, lambda: self._serve(group))
            return
        missed, waiter.missed = waiter.missed, []
        for look in missed:
            look()
        group.is_looking = False
        if self.is_closed or not group.parked:
            return
        if not isinstance(reply, PenstockError) and group.seen != readable_to(self.partition, stable=False):
            self._look_at(group)  # the look took a while, and something has come meanwhile
        else:
            self._wait(group, waiter.receive_request.group)

    def _wait(self, group: _Group, name: str) -> None:
        """Until there is something new, or something is due."""
        group.ticket = self.partition.watch(lambda: self._on_news(group))
        delivery = self.machine.group(name)
        times = (group.next_due_ms, delivery.ready_at_ms if delivery is not None else None)
        due_ms = min((time for time in times if time is not None), default=None)
        if due_ms is not None:
            # Never at once: what is ready and was not given is kept back by a limit, which a settlement lifts.
            wait_ms = max(LOOK_AGAIN_MS, due_ms - self.now_ms)
            group.stop_timer = self._timer(wait_ms / 1000, lambda: self._look_at(group))

    def _on_news(self, group: _Group) -> None:
        group.ticket = None
        if not group.is_looking:
            self._look_at(group)

    def _rest(self, group: _Group) -> None:
        if group.ticket is not None:
            self.partition.unwatch(group.ticket)
            group.ticket = None
        if group.stop_timer is not None:
            group.stop_timer()
            group.stop_timer = None

    # -- the end

    def tidy(self) -> None:
        """Forget what was read back, and ahead for groups that nobody has asked for since the last time."""
        self._back.forget()
        for key, group in list(self._groups.items()):
            if not group.is_used and not group.parked and not group.is_looking:
                del self._groups[key]
            group.is_used = False

    def close(self) -> None:
        """Another broker leads: whoever waits looks for it elsewhere."""
        self.is_closed = True
        for group in self._groups.values():
            self._rest(group)
            group.parked.clear()
        self._groups.clear()


def _ignore(reply: object) -> None:
    """Nobody waits for it."""

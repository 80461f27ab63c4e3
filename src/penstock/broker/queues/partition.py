"""Delivers messages of one partition led by this broker, for both SQS queues and Kafka share groups.

The state machine decides which receiver gets which message. QueuePartition reads messages ahead for it, returns
messages once their acquisition is committed, and holds long-polling receivers until messages are available.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.broker.queues.message_reader import Message, MessageLookup, Window, readable_end
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

READ_AHEAD_MIN: Final = 100
"""Minimum number of messages to read ahead if the previous acquire round could not deliver any message."""
ROUNDS_MAX: Final = 10
"""Maximum number of consecutive acquire rounds for one request before other tasks of the event loop may run."""
RECHECK_MS: Final = 50
UNSEEN: Final = -1

Ranges = tuple[Acquired, ...]
TakeRanges = Callable[[Ranges | PenstockError], None]
TakeMessages = Callable[[list[Delivered] | PenstockError], None]
TakeErrors = Callable[[Sequence[PenstockError | None] | PenstockError], None]


class ReceiveRequest(NamedTuple):
    """A request to receive messages of a queue or share group; any partition with its messages can serve it."""

    group: str
    holder: str
    max_messages: int
    visibility_ms: int
    settings: DeliverySettings = DEFAULTS
    delay_ms: int = 0
    """Delay, in milliseconds, of messages without a delay header."""
    max_bytes: int = BYTES_MAX
    whole_ranges: bool = False
    repeat: bool = False
    is_stable: bool = True
    """Whether messages of open transactions are held back until the transactions end (KIP-98)."""
    is_plain: bool = False
    """Whether delay headers are ignored, so that batches need not be decoded."""


class Waiter:
    """A long-polling receiver, which may wait at several partitions; the first partition with messages serves it."""

    __slots__ = ("is_busy", "is_open", "missed", "receive_request", "take")

    def __init__(self, receive_request: ReceiveRequest, take: Callable[[list[Delivered]], None]) -> None:
        self.receive_request = receive_request
        self.take = take
        self.is_open = True
        self.is_busy = False
        """Whether a partition is acquiring messages for this receiver, which other partitions then skip."""
        self.missed: list[Callable[[], None]] = []
        """Callbacks of partitions that skipped this receiver as busy; called if the receiver got no messages."""

    def ask(self, partition: "QueuePartition", then: Callable[[Any], None]) -> None:
        """Requests messages from a partition, which calls `then` with the messages or an error."""
        partition.receive(self.receive_request, then)

    def undo(self, partition: "QueuePartition", found: Any) -> None:
        """Undoes the delivery of messages that came when the receiver was already served or gone."""
        partition.undo(self.receive_request.group, found)


class _Group:
    """A share group on this partition: its read-ahead window and its long-polling receivers."""

    __slots__ = ("is_checking", "is_used", "next_due_ms", "parked", "seen", "stop_timer", "ticket", "window")

    def __init__(self, window: Window) -> None:
        self.window = window
        self.parked: dict[Waiter, None] = {}
        self.ticket: int | None = None
        """Ticket of the callback that the log calls on new messages; None while no such callback is registered."""
        self.stop_timer: Callable[[], None] | None = None
        self.is_checking = False
        self.seen = UNSEEN
        """End of the readable log when the last check for messages began; UNSEEN if a new check is needed."""
        self.next_due_ms: int | None = None
        """Earliest due time, in ms, of the never-delivered messages that were read ahead; None if there are none."""
        self.is_used = True


class QueuePartition:
    """Delivers a partition's messages; exists while this broker leads it and its delivery state is loaded."""

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
        self._lookup = MessageLookup(partition)
        self.purges: Final = Purges(partition, runtime, self.machine)
        self.is_closed = False

    @property
    def now_ms(self) -> int:
        """The time by which visibility timeouts and delays are measured."""
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
        """Acquires messages; calls `then` with their ranges once committed, or with () if none are available."""
        self._try_acquire(receive_request, then, 0)

    def _try_acquire(self, receive_request: ReceiveRequest, then: TakeRanges, rounds: int) -> None:
        group = self._group(receive_request)
        try:
            command = self._next_command(receive_request, group, rounds)
        except ColdRead as cold:
            self._warm(cold, lambda: self._try_acquire(receive_request, then, rounds), then)
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
        """Returns the Acquire command for a receive request; None if no message can be available. `rounds`: number
        of previous commands, which acquired nothing; if above 0, more messages are read ahead. Raises ColdRead if a
        thread must first read or decode them."""
        start = self.partition.log.start_offset
        delivery = self.machine.group(receive_request.group)
        if delivery is not None and delivery.start < start:
            self.runtime.post(Trimmed(receive_request.group, start))
        end = max(start, delivery.end) if delivery is not None else start
        window, settings = group.window, receive_request.settings
        window.seek(end)
        count = window_of(receive_request.max_messages) if settings.is_fifo else receive_request.max_messages
        if rounds:
            count = max(READ_AHEAD_MIN, count)
        window.fill(count)
        delay_ms = None if receive_request.is_plain else receive_request.delay_ms
        whole_max = settings.in_flight_max if receive_request.whole_ranges else 0
        ahead = window.fresh(count, delay_ms, with_groups=settings.is_fifo, whole_max=whole_max)
        now_ms = self.now_ms
        group.next_due_ms = min([fresh.due_ms for fresh in ahead.fresh]) if ahead.fresh else None
        ready_ms = delivery.ready_at_ms if delivery is not None else None
        is_ready = ready_ms is not None and ready_ms <= now_ms
        is_due = group.next_due_ms is not None and group.next_due_ms <= now_ms
        # With delay headers, later messages may be due before earlier ones.
        has_more = ahead.has_own_delays and ahead.end < window.limit
        can_skip = not ahead.fresh and ahead.end > end  # only markers, aborted records or gaps
        if not (is_ready or is_due or has_more or can_skip or receive_request.repeat):
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
            self._timer(0, lambda: self._try_acquire(receive_request, then, rounds + 1))
        else:
            self._try_acquire(receive_request, then, rounds + 1)

    def _warm(self, cold: ColdRead, then: Callable[[], None], on_error: Callable[[PenstockError], None]) -> None:
        """Loads data into the page cache on a thread, then calls `then`, or `on_error` with the error."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)

        def done(warmed: "asyncio.Future[None]") -> None:
            if warmed.cancelled():
                return
            error = warmed.exception()
            if isinstance(error, PenstockError):
                on_error(error)
            else:
                then()

        future.add_done_callback(done)

    # -- messages

    def receive(self, receive_request: ReceiveRequest, then: TakeMessages) -> None:
        """Acquires messages like `acquire`, but calls `then` with the messages themselves."""
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
                    message = window.message(offset) or self._lookup.message(offset, stable=receive_request.is_stable)
                    if message is not None:
                        found.append(self.delivered(message, receive_request.holder, acquired))
                    else:  # compaction or retention has removed it: acknowledge it
                        missing.append(Acknowledgement(offset, offset, receive_request.holder, AckType.DONE))
        except ColdRead as cold:
            self._warm(cold, lambda: self._on_ranges(receive_request, then, ranges), then)
            return
        except PenstockError as error:
            then(error)
            return
        if missing:
            self.runtime.post(Acknowledge(receive_request.group, tuple(missing), receive_request.settings))
            if not found:  # on the next turn of the loop: there may be many such messages
                self._timer(0, lambda: self.receive(receive_request, then))
                return
        then(found)

    def delivered(self, message: Message, holder: str, acquired: Acquired) -> Delivered:
        """Returns the Delivered object that a receiver gets for a message of this partition."""
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

    # -- acknowledging

    def acknowledge(self, command: Acknowledge, then: TakeErrors) -> None:
        """Acknowledges messages; once committed, calls `then` with an error or None for each message."""
        self.runtime.submit(command, then)
        self.check_waiters(command.group)

    def undo(self, group: str, delivered: Sequence[Delivered]) -> None:
        """Undoes deliveries that did not reach a receiver: the messages are available, and no delivery is counted."""
        undone = [each for each in delivered if not each.is_repeat]
        items = tuple(Acknowledgement(each.offset, each.offset, each.holder, AckType.UNDO) for each in undone)
        if items and not self.is_closed:
            self.acknowledge(Acknowledge(group, items), _ignore)

    # -- waiting

    def park(self, waiter: Waiter) -> None:
        """Adds a long-polling receiver, which gets the first messages available to it."""
        group = self._group(waiter.receive_request)
        group.parked[waiter] = None
        if group.ticket is None and not group.is_checking:
            self._schedule_check(group)  # messages may have arrived since the last check

    def unpark(self, waiter: Waiter) -> None:
        group = self._groups.get((waiter.receive_request.group, waiter.receive_request.is_stable))
        if group is not None:
            group.parked.pop(waiter, None)
            if not group.parked:
                self._stop_waiting(group)

    def check_waiters(self, name: str) -> None:
        """Checks for messages for a share group's waiting receivers, because messages may have become available."""
        for is_stable in (True, False):
            group = self._groups.get((name, is_stable))
            if group is not None and group.parked:
                if group.is_checking:
                    group.seen = UNSEEN  # the check in progress is out of date
                else:
                    self._schedule_check(group)

    def _schedule_check(self, group: _Group) -> None:
        """Schedules a check for available messages in the next event loop iteration; one check covers many events."""
        self._stop_waiting(group)
        group.is_checking = True
        self._timer(0, lambda: self._serve_next_waiter(group))

    def _serve_next_waiter(self, group: _Group) -> None:
        """Acquires messages for the receiver that has waited longest."""
        if self.is_closed:
            return
        waiter = next((known for known in group.parked if known.is_open and not known.is_busy), None)
        if waiter is None:
            group.is_checking = False
            for busy in group.parked:
                busy.missed.append(partial(self.check_waiters, busy.receive_request.group))
            return
        waiter.is_busy = True
        group.seen = readable_end(self.partition, stable=False)
        waiter.ask(self, partial(self._on_served, group, waiter))

    def _on_served(self, group: _Group, waiter: Waiter, reply: Any) -> None:
        waiter.is_busy = False
        if reply and not isinstance(reply, PenstockError):
            if waiter.is_open:
                waiter.is_open = False
                group.parked.pop(waiter, None)
                waiter.take(reply)
            else:
                waiter.undo(self, reply)
            self._timer(0, lambda: self._serve_next_waiter(group))
            return
        missed, waiter.missed = waiter.missed, []
        for check_again in missed:
            check_again()
        group.is_checking = False
        if self.is_closed or not group.parked:
            return
        if not isinstance(reply, PenstockError) and group.seen != readable_end(self.partition, stable=False):
            self._schedule_check(group)  # messages have arrived during the check
        else:
            self._wait_for_messages(group, waiter.receive_request.group)

    def _wait_for_messages(self, group: _Group, name: str) -> None:
        """Schedules the next check for available messages: when new messages arrive or a message becomes due."""
        group.ticket = self.partition.watch(lambda: self._on_new_messages(group))
        delivery = self.machine.group(name)
        times = (group.next_due_ms, delivery.ready_at_ms if delivery is not None else None)
        due_ms = min((time for time in times if time is not None), default=None)
        if due_ms is not None:
            # Never at once: messages that are ready but not acquired wait for an acknowledgement to lift a limit.
            wait_ms = max(RECHECK_MS, due_ms - self.now_ms)
            group.stop_timer = self._timer(wait_ms / 1000, lambda: self._schedule_check(group))

    def _on_new_messages(self, group: _Group) -> None:
        group.ticket = None
        if not group.is_checking:
            self._schedule_check(group)

    def _stop_waiting(self, group: _Group) -> None:
        if group.ticket is not None:
            self.partition.unwatch(group.ticket)
            group.ticket = None
        if group.stop_timer is not None:
            group.stop_timer()
            group.stop_timer = None

    # -- closing

    def evict_unused(self) -> None:
        """Drops all cached batches, and messages read ahead for share groups not used since the last call."""
        self._lookup.clear_cache()
        for key, group in list(self._groups.items()):
            if not group.is_used and not group.parked and not group.is_checking:
                del self._groups[key]
            group.is_used = False

    def close(self) -> None:
        """Drops all waiting receivers, because another broker now leads the partition: receivers wait there."""
        self.is_closed = True
        for group in self._groups.values():
            self._stop_waiting(group)
            group.parked.clear()
        self._groups.clear()


def _ignore(reply: object) -> None:
    pass

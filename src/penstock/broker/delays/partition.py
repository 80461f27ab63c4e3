"""The delayed messages of one partition led by this broker: copies, delivers, cancels and lists them.

The order at the start matters. First, a new leader searches the topic for messages that the previous leader delivered
without recording the delivery, and records these deliveries; only then are messages copied and delivered. See
delays/machine.py for the reason.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from penstock.broker.delays.companion_reader import CompanionReader, PendingMessage
from penstock.broker.delays.copier import Copier
from penstock.broker.delays.stats import DelayStats
from penstock.broker.delays.visibility_filter import VisibilityFilter
from penstock.delays.commands import Began, Begin, Cancel, ConfirmDelivered, Copy, Deliver, Release, Rewind, Take
from penstock.delays.entries import Entry, hash_of
from penstock.delays.machine import UNKNOWN, DelayMachine
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import CoordinatorLoadInProgress, PenstockError
from penstock.log.disk import ColdRead
from penstock.records.batch import batches
from penstock.records.build import build_rows
from penstock.records.columns import decode_columns
from penstock.records.delayed import DELIVERED_SEQUENCE, delivered_offsets, is_delivery, make_delivery_row
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime

logger = logging.getLogger(__name__)

TAKE_MAX: Final = 1000
"""Maximum number of messages delivered in one round."""
BATCH_BYTES_MAX: Final = 256 << 10
SCAN_BYTES: Final = 1 << 20
PAUSE_MS: Final = 5
"""Pause between two deliveries, in milliseconds, so that messages due during the pause share one batch."""
TICK_MS: Final = 500
"""Maximum pause, in milliseconds, between two checks for due messages, in case the wall clock is set forward."""
RETRY_MS: Final = 500
PROGRESS_MS: Final = 10_000
"""Interval, in milliseconds, at which the scan position of the topic is persisted if no messages are copied."""

NOTHING_FOUND: Final = ConfirmDelivered((), 0)

TakeReply = Callable[[Any], None]


class DelayPartition:
    """Copies and delivers delayed messages while this broker leads the partition and its companion log is loaded."""

    def __init__(
        self,
        *,
        partition: Partition,
        runtime: StateRuntime,
        visibility: VisibilityFilter,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        stats: DelayStats,
    ) -> None:
        assert isinstance(runtime.machine, DelayMachine)
        self.partition: Final = partition
        self.runtime: Final = runtime
        self.machine: Final = runtime.machine
        self._visibility = visibility
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._stats = stats
        self._companion_reader = CompanionReader(runtime.partition)
        self._copier = Copier(partition, self.machine, visibility.delayed_batches, clock)
        self._stops: dict[str, Callable[[], None]] = {}
        """Functions that cancel the running timers, by timer name."""
        self._ticket: int | None = None
        self._is_delivering = False
        self._progress_ms = clock.monotonic_s() * 1000
        self.is_closed = False
        self.is_ready = False
        """Whether the previous leader's deliveries are recorded; until then no message can be listed or cancelled."""

    def close(self) -> None:
        self.is_closed = True
        self._visibility.may_delay = False
        if self._ticket is not None:
            self.partition.unwatch(self._ticket)
        for stop in self._stops.values():
            stop()

    @property
    def _is_leader(self) -> bool:
        return not self.is_closed and self.partition.is_online and self.partition.is_leader

    def _set_timer(self, name: str, wait_ms: float, action: Callable[[], None]) -> None:
        """Sets a timer; replaces an earlier timer of the same name."""
        stop = self._stops.pop(name, None)
        if stop is not None:
            stop()

        def run() -> None:
            self._stops.pop(name, None)
            if self._is_leader:
                action()

        self._stops[name] = self._timer(max(0.0, wait_ms) / 1000, run)

    def _warm(self, cold: ColdRead, then: Callable[[], None]) -> None:
        """Reads data that is not in the page cache on a thread, then calls `then`."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)

        def done(warmed: "asyncio.Future[None]") -> None:
            if warmed.cancelled() or not self._is_leader:
                return
            if warmed.exception() is not None:
                logger.warning("delays_not_read partition=%s reason=%r", self.partition.name, str(warmed.exception()))
            self._set_timer("warm", 0 if warmed.exception() is None else RETRY_MS, then)

        future.add_done_callback(done)

    # -- starting

    def start(self) -> None:
        end = self.partition.log.end_offset
        if self.machine.since == UNKNOWN:
            self._begin(None, end, NOTHING_FOUND)
        elif self.machine.copied_to > end:
            logger.warning("delays_truncated partition=%s end=%d", self.partition.name, end)
            self.runtime.submit(Rewind(end), lambda reply: self._scan(self.machine.scan_from, end, NOTHING_FOUND))
        else:
            self._scan(self.machine.scan_from, end, NOTHING_FOUND)

    def _scan(self, at: int, end: int, found: ConfirmDelivered) -> None:
        """Searches the topic, one read at a time, for due messages that the previous leader appended to it without
        recording them as delivered in the companion log; then records them."""
        log = self.partition.log
        at = max(at, log.start_offset)
        if at < end:
            try:
                data = log.read(at, SCAN_BYTES, end)
            except ColdRead as cold:
                self._warm(cold, lambda: self._scan(at, end, found))
                return
            view, before = memoryview(data), at
            for position, header in batches(data):
                if is_delivery(header):
                    columns = decode_columns(view[position : position + header.size_bytes])
                    found = ConfirmDelivered((*found.offsets, *delivered_offsets(columns)), header.base_offset)
                at = header.next_offset
            if at > before:
                self._set_timer("scan", 0, lambda: self._scan(at, end, found))
                return
        self.partition.when_committed(end, lambda: self._confirm_found(end, found))

    def _confirm_found(self, end: int, found: ConfirmDelivered) -> None:
        if not self._is_leader or not self.partition.has_committed(end):
            return
        if any(self.machine.pending.find(offset) is not None for offset in found.offsets):
            self.runtime.submit(found, lambda reply: self._begin(reply, end, found))
        else:
            self._begin(None, end, found)

    def _begin(self, reply: Any, end: int, found: ConfirmDelivered) -> None:
        if isinstance(reply, PenstockError):
            self._set_timer("scan", RETRY_MS, lambda: self._confirm_found(end, found))
        elif self._is_leader:
            self.runtime.submit(Begin(self.partition.log.end_offset), self._on_begun)

    def _on_begun(self, reply: Any) -> None:
        if isinstance(reply, PenstockError):
            self._set_timer("begin", RETRY_MS, lambda: self._begin(None, 0, NOTHING_FOUND))

    def perform(self, effect: Any) -> None:
        """Carries out an effect (requested action) of the delay state machine, once the decision is committed."""
        if not self._is_leader:
            return
        if isinstance(effect, Began):
            self.is_ready = True
            self._visibility.may_delay = True
            self._copy()
            self._tick()
        elif isinstance(effect, Deliver):
            self._deliver(effect.entries)

    # -- copying

    def _copy(self) -> None:
        """Copies committed delayed messages from the partition's log to its companion log, now and as they arrive."""
        if self._ticket is None:
            self._ticket = self.partition.watch(self._on_growth)
        try:
            commands = self._copier.next()
        except ColdRead as cold:
            self._warm(cold, self._copy)
            return
        for command in commands:
            self.runtime.submit(command, self._ignore)
            if self.machine.copied_to < command.copied_to:  # it could not be persisted
                self._copier.rewind()
                self._set_timer("copy", RETRY_MS, self._copy)
                return
        if commands:
            self._tick()
        if self._copier.has_more:
            self._set_timer("copy", 0, self._copy)

    def _on_growth(self) -> None:
        self._ticket = None
        if self._is_leader:
            self._copier.note_growth()
            # On the next turn of the loop, so that all records of this turn are copied together.
            self._set_timer("copy", 0, self._copy)

    def _persist_progress(self) -> None:
        """Persists how far the topic was scanned: a follower's retention may delete messages only below that offset,
        and the next leader continues the scan there."""
        now_ms = self._clock.monotonic_s() * 1000
        if now_ms - self._progress_ms < PROGRESS_MS:
            return
        self._progress_ms = now_ms
        if self._copier.scanned_to > self.machine.copied_to:
            self.runtime.submit(Copy((), self._copier.scanned_to), self._ignore)
        mark = self.partition.high_watermark
        if mark > self.machine.scan_from:
            self.runtime.submit(ConfirmDelivered((), mark), self._ignore)

    # -- delivering

    def _tick(self) -> None:
        """Delivers the messages that are due."""
        if self._is_delivering:
            return
        now_ms, due_ms = self._clock.now_ms(), self.machine.pending.next_due_ms
        if due_ms is not None and due_ms <= now_ms:
            self._is_delivering = True
            self.runtime.submit(Take(now_ms, TAKE_MAX), self._on_taken)
            return
        self._persist_progress()
        self._set_timer("tick", TICK_MS if due_ms is None else min(TICK_MS, due_ms - now_ms), self._tick)

    def _on_taken(self, reply: Any) -> None:
        if isinstance(reply, PenstockError) or not reply:
            self._pause(RETRY_MS)

    def _pause(self, wait_ms: int) -> None:
        self._is_delivering = False
        if self._is_leader:
            self._set_timer("tick", wait_ms, self._tick)

    def _deliver(self, entries: Sequence[Entry]) -> None:
        """Appends due messages to the topic; records the delivery once it is committed."""
        try:
            messages = [self._companion_reader.read(entry) for entry in entries if entry.is_live]
        except ColdRead as cold:
            self._warm(cold, lambda: self._deliver(entries))
            return
        except PenstockError as error:
            self._release_failed(error)
            return
        if entries[-1].due_ms > self._clock.now_ms():  # the clock was set back meanwhile
            self.runtime.submit(Release(), self._ignore)
            self._pause(PAUSE_MS)
            return
        log = self.partition.log
        base, appended, done = log.end_offset, 0, list(entries)
        try:
            self.partition.check_in_sync()
            for batch in _in_batches(messages):
                self._append(batch)
                appended += len(batch)
        except PenstockError as error:
            if not appended:
                self._release_failed(error)
                return
            rank = messages[appended - 1].entry.rank
            done = [entry for entry in entries if entry.rank <= rank]
        end = log.end_offset
        self.partition.when_committed(end, lambda: self._on_delivered(done, base, end))

    def _append(self, messages: Sequence[PendingMessage]) -> None:
        now_ms, name = self._clock.now_ms(), self.partition.name
        rows = [
            make_delivery_row(
                message.stored.raw,
                topic_id=self.partition.topic_id,
                partition=name.partition,
                offset=message.entry.offset,
                timestamp_ms=message.stored.timestamp_ms,
                due_ms=message.entry.due_ms,
            )
            for message in messages
        ]
        batch = build_rows(rows, now_ms, base_sequence=DELIVERED_SEQUENCE)
        self.partition.append_own(batch, now_ms, any_size=True)

    def _release_failed(self, error: PenstockError) -> None:
        logger.warning("delayed_not_delivered partition=%s reason=%r", self.partition.name, str(error))
        self.runtime.submit(Release(), self._ignore)
        self._pause(RETRY_MS)

    def _on_delivered(self, done: Sequence[Entry], base: int, end: int) -> None:
        """Called when the messages of `done`, appended to the topic at offsets `base` to `end` (exclusive), are
        committed. Records in the companion log that they are delivered. If failover loses this record, the next
        leader finds the messages in the topic."""
        if not self._is_leader or not self.partition.has_committed(end):
            return
        now_ms = self._clock.now_ms()
        for entry in done:
            if entry.is_live:
                self._stats.delivered(now_ms - entry.due_ms)
        self._confirm_delivered(ConfirmDelivered(tuple(entry.offset for entry in done), base))

    def _confirm_delivered(self, confirmed: ConfirmDelivered) -> None:
        before = self.machine.in_flight
        self.runtime.submit(confirmed, self._ignore)
        if self.machine.in_flight == before:  # it could not be persisted, but the messages are in the topic
            self._set_timer("note", RETRY_MS, lambda: self._confirm_delivered(confirmed))
            return
        if self.machine.in_flight:
            self.runtime.submit(Release(), self._ignore)
        self._pause(PAUSE_MS)

    # -- requests

    def cancel(self, offsets: Sequence[int], then: TakeReply) -> None:
        """Cancels messages; once committed, calls `then` with a dict: by offset, whether the message was pending."""

        def on_cancelled(reply: Any) -> None:
            if not isinstance(reply, PenstockError):
                self._stats.cancelled += sum(reply.values())
            then(reply)

        if not self.is_ready:  # deliveries in the topic may not be recorded yet
            then(CoordinatorLoadInProgress(f"delayed messages of {self.partition.name} are still loading; try again"))
            return
        self.runtime.submit(Cancel(tuple(offsets)), on_cancelled)

    async def find_key(self, key: bytes) -> list[int]:
        """Returns the offsets of pending messages with a key. Lets other event loop tasks run during the search."""
        found: list[int] = []
        for entries in self.machine.pending.with_hash(hash_of(key)):
            found += [entry.offset for entry in entries if (await self.read(entry)).key == key]
            await asyncio.sleep(0)
        return found

    async def read(self, entry: Entry) -> PendingMessage:
        """Returns a pending message; reads it from disk if necessary."""
        while True:
            try:
                return self._companion_reader.read(entry)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)

    @staticmethod
    def _ignore(reply: Any) -> None:
        """Ignores a reply: the state machine's state shows whether the command took effect."""


def _in_batches(messages: Sequence[PendingMessage]) -> list[list[PendingMessage]]:
    found: list[list[PendingMessage]] = []
    size = BATCH_BYTES_MAX
    for message in messages:
        if size + len(message.stored.raw) > BATCH_BYTES_MAX:
            found.append([])
            size = 0
        found[-1].append(message)
        size += len(message.stored.raw)
    return found

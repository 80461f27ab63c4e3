"""The delayed messages of one partition that this broker leads: copied, delivered, cancelled, listed.

The order in which it begins matters. First it is found out, from the topic itself, what the leader before delivered
and did not note; that is noted; only then are messages copied and delivered. See delays/machine.py for why.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from penstock.broker.delays.companion_reader import Keeping, KeptMessage
from penstock.broker.delays.copier import Copier
from penstock.broker.delays.stats import DelayStats
from penstock.broker.delays.visibility_filter import VisibilityFilter
from penstock.delays.commands import Began, Begin, Cancel, Copy, Deliver, Fired, GiveBack, Rewind, Take
from penstock.delays.entries import Entry, hash_of
from penstock.delays.machine import UNKNOWN, DelayMachine
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.errors import CoordinatorLoadInProgress, PenstockError
from penstock.log.disk import ColdRead
from penstock.records.batch import batches
from penstock.records.build import build_rows
from penstock.records.columns import decode_columns
from penstock.records.delayed import DELIVERED_SEQUENCE, delivered_offsets, is_delivery, to_deliver
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime

logger = logging.getLogger(__name__)

TAKE_MAX: Final = 1000
"""Messages that are delivered together."""
BATCH_BYTES_MAX: Final = 256 << 10
SCAN_BYTES: Final = 1 << 20
REST_MS: Final = 5
"""Between two deliveries: what is due meanwhile goes into one batch."""
LOOK_MS: Final = 500
"""How often it is looked what time it is, whatever is due when: the clock may have been set."""
RETRY_MS: Final = 500
NOTE_MS: Final = 10_000
"""How often it is noted how far the topic was looked at, if nothing else is noted."""

NOTHING_FOUND: Final = Fired((), 0)

TakeReply = Callable[[Any], None]


class DelayPartition:
    """Made when the partition's machine has read everything back, closed when another broker leads."""

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
        self._keeping = Keeping(runtime.partition)
        self._copier = Copier(partition, self.machine, visibility.marks, clock)
        self._stops: dict[str, Callable[[], None]] = {}
        """What takes back each timer that is set."""
        self._ticket: int | None = None
        self._is_delivering = False
        self._noted_ms = clock.monotonic_s() * 1000
        self.is_closed = False
        self.is_ready = False
        """Whether all is known that was delivered: until then nobody can be told what waits."""

    def close(self) -> None:
        self.is_closed = True
        self._visibility.may_delay = False
        if self._ticket is not None:
            self.partition.unwatch(self._ticket)
        for stop in self._stops.values():
            stop()

    @property
    def _is_here(self) -> bool:
        return not self.is_closed and self.partition.is_online and self.partition.is_leader

    def _later(self, name: str, wait_ms: float, action: Callable[[], None]) -> None:
        """At most one of a name: a new one takes its place."""
        stop = self._stops.pop(name, None)
        if stop is not None:
            stop()

        def run() -> None:
            self._stops.pop(name, None)
            if self._is_here:
                action()

        self._stops[name] = self._timer(max(0.0, wait_ms) / 1000, run)

    def _warm(self, cold: ColdRead, then: Callable[[], None]) -> None:
        """Have something read from the device on a thread, and go on."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)

        def done(warmed: "asyncio.Future[None]") -> None:
            if warmed.cancelled() or not self._is_here:
                return
            if warmed.exception() is not None:
                logger.warning("delays_not_read partition=%s reason=%r", self.partition.name, str(warmed.exception()))
            self._later("warm", 0 if warmed.exception() is None else RETRY_MS, then)

        future.add_done_callback(done)

    # -- taking over

    def start(self) -> None:
        end = self.partition.log.end_offset
        if self.machine.since == UNKNOWN:
            self._begin(None, end, NOTHING_FOUND)
        elif self.machine.copied_to > end:
            logger.warning("delays_taken_back partition=%s end=%d", self.partition.name, end)
            self.runtime.submit(Rewind(end), lambda reply: self._scan(self.machine.scan_from, end, NOTHING_FOUND))
        else:
            self._scan(self.machine.scan_from, end, NOTHING_FOUND)

    def _scan(self, at: int, end: int, found: Fired) -> None:
        """Find what was delivered before and not noted, a piece at a time; then note it."""
        log = self.partition.log
        at = max(at, log.start_offset)
        if at < end:
            try:
                data = log.read(at, SCAN_BYTES, end)
            except ColdRead as cold:
                self._warm(cold, lambda: self._scan(at, end, found))
                return
            view, before = memoryview(data), at
            for place, header in batches(data):
                if is_delivery(header):
                    columns = decode_columns(view[place : place + header.size_bytes])
                    found = Fired((*found.offsets, *delivered_offsets(columns)), header.base_offset)
                at = header.next_offset
            if at > before:
                self._later("scan", 0, lambda: self._scan(at, end, found))
                return
        self.partition.when_committed(end, lambda: self._note_found(end, found))

    def _note_found(self, end: int, found: Fired) -> None:
        if not self._is_here or not self.partition.has_committed(end):
            return
        if any(self.machine.pending.find(offset) is not None for offset in found.offsets):
            self.runtime.submit(found, lambda reply: self._begin(reply, end, found))
        else:
            self._begin(None, end, found)

    def _begin(self, reply: Any, end: int, found: Fired) -> None:
        if isinstance(reply, PenstockError):
            self._later("scan", RETRY_MS, lambda: self._note_found(end, found))
        elif self._is_here:
            self.runtime.submit(Begin(self.partition.log.end_offset), self._on_begun)

    def _on_begun(self, reply: Any) -> None:
        if isinstance(reply, PenstockError):
            self._later("begin", RETRY_MS, lambda: self._begin(None, 0, NOTHING_FOUND))

    def perform(self, effect: Any) -> None:
        """What the machine wants done, now that it is committed."""
        if not self._is_here:
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
        """All that is committed and not copied yet, a piece at a time; then wait for more."""
        if self._ticket is None:
            self._ticket = self.partition.watch(self._on_news)
        try:
            commands = self._copier.next()
        except ColdRead as cold:
            self._warm(cold, self._copy)
            return
        for command in commands:
            self.runtime.submit(command, self._ignore)
            if self.machine.copied_to < command.copied_to:  # it could not be persisted
                self._copier.rewind()
                self._later("copy", RETRY_MS, self._copy)
                return
        if commands:
            self._tick()
        if self._copier.has_more:
            self._later("copy", 0, self._copy)

    def _on_news(self) -> None:
        self._ticket = None
        if self._is_here:
            self._copier.note_growth()
            # Not at once: what else arrives in this turn of the loop comes along.
            self._later("copy", 0, self._copy)

    def _note_progress(self) -> None:
        """So that retention goes on at followers, and whoever takes over need not look at the topic from long ago."""
        now_ms = self._clock.monotonic_s() * 1000
        if now_ms - self._noted_ms < NOTE_MS:
            return
        self._noted_ms = now_ms
        if self._copier.looked_to > self.machine.copied_to:
            self.runtime.submit(Copy((), self._copier.looked_to), self._ignore)
        mark = self.partition.high_watermark
        if mark > self.machine.scan_from:
            self.runtime.submit(Fired((), mark), self._ignore)

    # -- delivering

    def _tick(self) -> None:
        """Have delivered what is due."""
        if self._is_delivering:
            return
        now_ms, due_ms = self._clock.now_ms(), self.machine.pending.next_due_ms
        if due_ms is not None and due_ms <= now_ms:
            self._is_delivering = True
            self.runtime.submit(Take(now_ms, TAKE_MAX), self._on_taken)
            return
        self._note_progress()
        self._later("tick", LOOK_MS if due_ms is None else min(LOOK_MS, due_ms - now_ms), self._tick)

    def _on_taken(self, reply: Any) -> None:
        if isinstance(reply, PenstockError) or not reply:
            self._rest(RETRY_MS)

    def _rest(self, wait_ms: int) -> None:
        self._is_delivering = False
        if self._is_here:
            self._later("tick", wait_ms, self._tick)

    def _deliver(self, entries: Sequence[Entry]) -> None:
        """Append what was taken to the topic; when that is committed, note it."""
        try:
            messages = [self._keeping.read(entry) for entry in entries if entry.is_live]
        except ColdRead as cold:
            self._warm(cold, lambda: self._deliver(entries))
            return
        except PenstockError as error:
            self._give_back(error)
            return
        if entries[-1].due_ms > self._clock.now_ms():  # somebody has set the clock back meanwhile
            self.runtime.submit(GiveBack(), self._ignore)
            self._rest(REST_MS)
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
                self._give_back(error)
                return
            rank = messages[appended - 1].entry.rank
            done = [entry for entry in entries if entry.rank <= rank]
        end = log.end_offset
        self.partition.when_committed(end, lambda: self._on_delivered(done, base, end))

    def _append(self, messages: Sequence[KeptMessage]) -> None:
        now_ms, name = self._clock.now_ms(), self.partition.name
        rows = [
            to_deliver(
                message.kept.raw,
                topic_id=self.partition.topic_id,
                partition=name.partition,
                offset=message.entry.offset,
                timestamp_ms=message.kept.timestamp_ms,
                due_ms=message.entry.due_ms,
            )
            for message in messages
        ]
        batch = build_rows(rows, now_ms, base_sequence=DELIVERED_SEQUENCE)
        self.partition.append_own(batch, now_ms, any_size=True)

    def _give_back(self, error: PenstockError) -> None:
        logger.warning("delayed_not_delivered partition=%s reason=%r", self.partition.name, str(error))
        self.runtime.submit(GiveBack(), self._ignore)
        self._rest(RETRY_MS)

    def _on_delivered(self, done: Sequence[Entry], base: int, end: int) -> None:
        """They are committed, or this broker leads no more: then whoever does finds them."""
        if not self._is_here or not self.partition.has_committed(end):
            return
        now_ms = self._clock.now_ms()
        for entry in done:
            if entry.is_live:
                self._stats.delivered(now_ms - entry.due_ms)
        self._note_delivered(Fired(tuple(entry.offset for entry in done), base))

    def _note_delivered(self, fired: Fired) -> None:
        before = self.machine.in_flight
        self.runtime.submit(fired, self._ignore)
        if self.machine.in_flight == before:  # it could not be persisted: they are in the topic all the same
            self._later("note", RETRY_MS, lambda: self._note_delivered(fired))
            return
        if self.machine.in_flight:
            self.runtime.submit(GiveBack(), self._ignore)
        self._rest(REST_MS)

    # -- what people ask for

    def cancel(self, offsets: Sequence[int], then: TakeReply) -> None:
        """Whether each waited until now, when that is committed: a dict by offset, or an error."""

        def on_cancelled(reply: Any) -> None:
            if not isinstance(reply, PenstockError):
                self._stats.cancelled += sum(reply.values())
            then(reply)

        if not self.is_ready:  # what is in the topic already may not be noted yet
            then(
                CoordinatorLoadInProgress(f"delayed messages of {self.partition.name} are being read back; try again")
            )
            return
        self.runtime.submit(Cancel(tuple(offsets)), on_cancelled)

    async def find_key(self, key: bytes) -> list[int]:
        """The offsets of messages with a key that wait. Of very many this takes a while: others have their turns."""
        found: list[int] = []
        for entries in self.machine.pending.with_hash(hash_of(key)):
            found += [entry.offset for entry in entries if (await self.read(entry)).key == key]
            await asyncio.sleep(0)
        return found

    async def read(self, entry: Entry) -> KeptMessage:
        """A message that waits."""
        while True:
            try:
                return self._keeping.read(entry)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)

    @staticmethod
    def _ignore(reply: Any) -> None:
        """What became of it is seen from the machine."""


def _in_batches(messages: Sequence[KeptMessage]) -> list[list[KeptMessage]]:
    found: list[list[KeptMessage]] = []
    size = BATCH_BYTES_MAX
    for message in messages:
        if size + len(message.kept.raw) > BATCH_BYTES_MAX:
            found.append([])
            size = 0
        found[-1].append(message)
        size += len(message.kept.raw)
    return found

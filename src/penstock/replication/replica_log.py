"""The log of a replica: whether it is online, how far it is durable and committed, reads, and waiting callbacks."""

from collections.abc import Callable

from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.io_queue import Outcome, Work
from penstock.log.log import Log
from penstock.log.settings import Flush
from penstock.replication.visibility_filter import VisibilityFilter
from penstock.replication.waiters import ChangeWaiters, OffsetWaiters, Waiter
from penstock.wire.schema import Buffer


class ReplicaLog:
    """Base class of Partition: a log with its high watermark, online or offline (`offline_reason` tells why)."""

    name: TopicPartition

    def __init__(self, log: Log | None, high_watermark: int | None) -> None:
        self._log = log
        self.held = log
        """The log, even while offline or owned by a disk thread: its files stay open until the log is closed."""
        self.is_lent = False
        """Whether a disk thread owns the log: the replica is offline until the thread has finished."""
        self.offline_reason = ""
        self.on_returned: Callable[[], None] = _ignore
        """Callback when the disk thread that owned the log has finished: metadata changes can be applied again."""
        self.is_leader = True
        self.allows_fast_path = False
        """Whether appends may take the fast path: they are committed at once, and batches are not decompressed."""
        self.high_watermark = (log.end_offset if log else 0) if high_watermark is None else high_watermark
        self.visibility: VisibilityFilter | None = None
        """Filter that hides delayed messages from consumers until they are due; None without delayed messages."""
        self._until_committed, self._until_durable = OffsetWaiters(), OffsetWaiters()
        self._consumers, self._followers = ChangeWaiters(), ChangeWaiters()

    # -- online or offline

    @property
    def log(self) -> Log:
        if self._log is None:
            raise StorageError(f"{self.name} is offline: {self.offline_reason}")
        return self._log

    @property
    def is_online(self) -> bool:
        return self._log is not None

    def _take_offline(self, reason: str) -> None:
        self.offline_reason = reason
        self._log = None
        self.is_lent = False
        self.allows_fast_path = False

    def change_log(self, change: Callable[[], None], then: Callable[[Outcome], None]) -> None:
        """Changes the log by a job of its I/O queue, on a thread; the replica is offline until the job has ended.
        `then` is called when the log is online again, but not if the replica has been closed."""

        def begin() -> Work | None:
            if not self.is_online:
                return None
            self._take_offline("its log is being truncated")
            self.is_lent = True
            self._wake_all()
            return change

        def end(outcome: Outcome) -> None:
            if self.is_lent:
                self._log, self.is_lent, self.offline_reason = self.held, False, ""
                then(outcome)
                self.on_returned()

        self.log.io.add(begin, end)

    # -- durable and committed records

    @property
    def is_durable(self) -> bool:
        """Whether all records are durable; with `flush=group` this means fsynced."""
        return self.durable_end >= self.log.end_offset

    @property
    def durable_end(self) -> int:
        """End offset of the durable records. With `flush=group`, these are the fsynced records; with `flush=os`,
        all records."""
        log = self.log
        return log.end_offset if log.settings.flush is Flush.OS else min(log.checkpoint.synced_to, log.end_offset)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: all transactions with records below it have ended."""
        log = self.log
        return log.last_stable_offset(self.high_watermark) if log.has_transactions else self.high_watermark

    def has_committed(self, end_offset: int) -> bool:
        """Whether this broker leads and the high watermark has reached `end_offset`."""
        return self._log is not None and self.is_leader and self.high_watermark >= end_offset

    def advance(self, high_watermark: int) -> None:
        """Advances the high watermark, and wakes producers and consumers that wait for it."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self._until_committed.reach(high_watermark)
            self._consumers.wake()

    def read(
        self, offset: int, max_bytes: int, *, blocking: bool = False, force: bool = True, stable: bool = False
    ) -> Buffer:
        """Reads batches from `offset` up to the high watermark or, if `stable`, up to the last stable offset. For
        `force`, `blocking` and the errors, see Log.read."""
        limit = self.last_stable_offset if stable else self.high_watermark
        if self.visibility is not None:
            limit = self.visibility.visible_to(limit)
        return self.log.read(offset, max_bytes, limit, blocking=blocking, force=force)

    # -- waiting

    def when_committed(self, end_offset: int, waiter: Waiter) -> None:
        """Calls `waiter` once, when the high watermark has reached `end_offset` or this broker no longer leads."""
        if self.high_watermark >= end_offset or self._log is None or not self.is_leader:
            waiter()
            return
        self._until_committed.add(end_offset, waiter)

    def when_durable(self, end_offset: int, waiter: Waiter) -> None:
        """Calls `waiter` once, when this log is durable up to `end_offset` or this broker no longer leads."""
        if self._log is None or self.durable_end >= end_offset or not self.is_leader:
            waiter()
            return
        self._until_durable.add(end_offset, waiter)

    def watch(self, waiter: Waiter) -> int:
        """Calls `waiter` once, when the high watermark advances. Returns a ticket for `unwatch`. The last stable
        offset needs no watch of its own: it advances when a transaction marker is committed."""
        return self._consumers.add(waiter)

    def unwatch(self, ticket: int) -> None:
        self._consumers.remove(ticket)

    def wake_consumers(self) -> None:
        """Calls all callbacks passed to `watch`, since delayed messages have become visible."""
        self._consumers.wake()

    def watch_tail(self, waiter: Waiter) -> int:
        """Calls `waiter` once, at the next append, committed or not. Returns a ticket for `unwatch_tail`."""
        return self._followers.add(waiter)

    def unwatch_tail(self, ticket: int) -> None:
        self._followers.remove(ticket)

    def _wake_all(self) -> None:
        for waiting in (self._consumers, self._followers, self._until_committed, self._until_durable):
            if waiting.waiting:
                waiting.wake()


def _ignore() -> None:
    """Default callback, which does nothing."""

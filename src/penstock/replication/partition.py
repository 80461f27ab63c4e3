"""A partition that this broker leads: its log, and who waits for it to grow."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError, StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.admission import may_open
from penstock.log.log import Appended, Log
from penstock.log.producers import NO_OFFSET
from penstock.log.settings import Flush, LogSettings
from penstock.records.build import control_marker
from penstock.wire.schema import Buffer

Waiter = Callable[[], None]


class FencedLeaderEpoch(PenstockError):
    """The client knows an older leader than this one."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(PenstockError):
    """The client knows a newer leader than this one."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicas(PenstockError):
    code = ErrorCode.NOT_ENOUGH_REPLICAS


class Partition:
    """The leader's side of one partition. `log` is None while it is offline, and `offline_reason` says why."""

    def __init__(self, *, topic_id: bytes, name: TopicPartition, leader_epoch: int, log: Log | None) -> None:
        self.topic_id: Final = topic_id
        self.name: Final = name
        self.leader_epoch = leader_epoch
        self._log = log
        self.offline_reason = ""
        self.on_append: Callable[[Partition], None] = _ignore
        """Called after each append that waits for a flush."""
        self.on_marker: Callable[[int, bool], None] | None = None
        """Called after the end of a transaction is appended: by whose, and whether it was committed."""
        self._numbers = count()
        self._until: list[tuple[int, int, Waiter]] = []
        self._watchers: dict[int, Waiter] = {}
        self.high_watermark = log.end_offset if log else 0
        self.is_express = False
        """Whether appends are committed at once and batches stay closed, so that the express lane may be taken."""

    @property
    def log(self) -> Log:
        if self._log is None:
            raise StorageError(f"{self.name} is offline: {self.offline_reason}")
        return self._log

    @property
    def is_online(self) -> bool:
        return self._log is not None

    def go_offline(self, reason: str) -> None:
        """Answer with a storage error from now on; everyone who waits is told to look again."""
        self.offline_reason = reason
        self._log = None
        self.is_express = False
        self._wake_watchers()
        waiting, self._until = self._until, []
        for _, _, waiter in waiting:
            waiter()

    def follow(self, settings: LogSettings, leader_epoch: int) -> None:
        """The topic's settings or the leader's epoch may have changed."""
        self.leader_epoch = leader_epoch
        if self._log is not None:
            self._log.settings = settings
            # Nor with the broker's times: they are set in place, and the lane offers a batch twice if it must.
            self.is_express = settings.flush is Flush.OS and not may_open(settings) and not settings.log_append_time

    def check_epoch(self, epoch: int) -> None:
        """A client that names a leader epoch must name this one (KIP-320)."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name} has leader epoch {self.leader_epoch}, the request has {epoch}")
        raise UnknownLeaderEpoch(f"{self.name} has leader epoch {self.leader_epoch}, the request has {epoch}")

    # -- writing

    def append(self, batch: bytearray | memoryview, now_ms: int, may_begin: bool = False) -> Appended:
        """Append one producer's batch. It is committed once `high_watermark` has passed its last offset.

        `may_begin`: it may be the first of a transaction here; see Log.append.
        """
        log = self._log or self.log
        appended = log.append(batch, self.leader_epoch, now_ms, may_begin)
        if log.settings.flush is Flush.OS:
            if self._until or self._watchers:
                self.advance(log.end_offset)
            else:
                self.high_watermark = log.end_offset
        elif self.high_watermark <= appended.last_offset:
            self.on_append(self)
        return appended

    def append_own(self, batch: bytearray, now_ms: int) -> Appended:
        """Append a batch that this broker made, in a producer's transaction or in none; see Log.append_own."""
        log = self.log
        appended = log.append_own(batch, self.leader_epoch, now_ms)
        if log.settings.flush is Flush.OS:
            self.advance(log.end_offset)
        else:
            self.on_append(self)
        log.stable_end(self.high_watermark)  # or what has ended long ago would be remembered until someone asks
        return appended

    def write_marker(
        self,
        producer: ProducerKey,
        committed: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """End a producer's transaction here. Where none is open, as when this is said twice, that changes nothing.

        Raises InvalidProducerEpoch if a newer instance of the producer has written here (with transaction version 2:
        also if the producer has gone on since), TransactionCoordinatorFenced if a newer coordinator has.
        """
        self.log.producers.check_marker(producer, coordinator_epoch, transaction_version)
        marker = control_marker(
            commit=committed,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp_ms=now_ms,
        )
        appended = self.append_own(marker, now_ms)
        if self.on_marker is not None:
            self.on_marker(producer.producer_id, committed)
        return appended

    def guard(self, producer_id: int) -> int:
        """Changes when a transaction of this producer is ended here: what was known about it before is stale then."""
        producer = self.log.producers.by_id.get(producer_id)
        return NO_OFFSET if producer is None else producer.marker_offset

    def knows(self, producer_id: int) -> bool:
        """Whether anything is known of a producer here: not if it is new, or was silent for long."""
        return producer_id in self.log.producers.by_id

    def advance(self, high_watermark: int) -> None:
        """Everything below is committed: readers may see it, producers are answered."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        while self._until and self._until[0][0] <= high_watermark:
            heappop(self._until)[2]()
        if self._watchers:
            self._wake_watchers()

    # -- waiting

    def when_committed(self, end_offset: int, waiter: Waiter) -> None:
        """Call once, when the high watermark has reached an offset or the partition is offline; maybe at once."""
        if self.high_watermark >= end_offset or self._log is None:
            waiter()
            return
        heappush(self._until, (end_offset, next(self._numbers), waiter))

    def watch(self, waiter: Waiter) -> int:
        """Call once, at the next advance; a ticket for `unwatch`.

        The last stable offset needs no watch of its own: a transaction has ended when its marker is committed.
        """
        ticket = next(self._numbers)
        self._watchers[ticket] = waiter
        return ticket

    def unwatch(self, ticket: int) -> None:
        self._watchers.pop(ticket, None)

    def _wake_watchers(self) -> None:
        waiting, self._watchers = self._watchers, {}
        for waiter in waiting.values():
            waiter()

    # -- reading

    @property
    def last_stable_offset(self) -> int:
        """Everything below is committed, and so are, or are not, the transactions that it is part of."""
        log = self.log
        return log.stable_end(self.high_watermark) if log.has_transactions else self.high_watermark

    def read(
        self, offset: int, max_bytes: int, *, blocking: bool = False, force: bool = True, stable: bool = False
    ) -> Buffer:
        """Committed batches from `offset` on, or only `stable` ones; see Log.read."""
        limit = self.last_stable_offset if stable else self.high_watermark
        return self.log.read(offset, max_bytes, limit, blocking=blocking, force=force)


def _ignore(partition: Partition) -> None:
    """Nobody listens yet."""

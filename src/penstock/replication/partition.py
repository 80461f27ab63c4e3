"""A replica of a partition on this broker: its log, whether it leads or follows, and who waits for it to grow."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError, StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.admission import may_open
from penstock.log.log import Appended, Log
from penstock.log.producers import NO_OFFSET
from penstock.log.settings import Flush, LogSettings
from penstock.records.build import control_marker
from penstock.replication.following import Following
from penstock.replication.leadership import Leadership
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


OWN: Final = 0
"""The number of a partition's own log among its tracks; a companion comes after it."""


class Partition:
    """One replica. `log` is None while it is offline, and `offline_reason` says why.

    It leads alone, from the start, until it is told otherwise: then all that it has is committed.
    """

    def __init__(
        self,
        *,
        topic_id: bytes,
        name: TopicPartition,
        leader_epoch: int,
        log: Log | None,
        high_watermark: int | None = None,
    ) -> None:
        self.topic_id: Final = topic_id
        self.name: Final = name
        self.leader_epoch = leader_epoch
        self._log = log
        self.offline_reason = ""
        self.on_append: Callable[[Partition], None] = _ignore
        """Called after each append that waits for a flush."""
        self.on_kept: Callable[[Partition], None] = _ignore
        """Called when a follower has its log as safe as the topic wants it: it may ask for more."""
        self.on_marker: Callable[[int, bool], None] | None = None
        """Called after the end of a transaction is appended: by whose, and whether it was committed."""
        self.is_leader = True
        self.leadership: Leadership | None = None
        """While it leads and has followers: what is committed is what they have too."""
        self.following: Following | None = None
        """While another broker leads."""
        self._numbers = count()
        self._until: list[tuple[int, int, Waiter]] = []
        self._watchers: dict[int, Waiter] = {}
        self._followers: dict[int, Waiter] = {}
        if high_watermark is None:
            high_watermark = log.end_offset if log else 0
        self.high_watermark = high_watermark
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
        self._wake_all()

    def _wake_all(self) -> None:
        self._wake_watchers()
        self._wake_followers()
        waiting, self._until = self._until, []
        for _, _, waiter in waiting:
            waiter()

    # -- leading and following

    def lead(self, state: PartitionState, node_id: int, lag_max_ms: int, now_ms: int) -> None:
        """Lead, from now on, in the epoch of a state; or go on leading in it, as others come and go."""
        log = self.log
        is_alone = state.replicas == (node_id,)
        is_new = not self.is_leader or self.leader_epoch != state.leader_epoch
        if is_new:
            log.note_epoch(state.leader_epoch, log.end_offset)
            self.leader_epoch = state.leader_epoch
            self.is_leader = True
            self.following = None
        if is_new or (self.leadership is None and not is_alone):
            self.leadership = Leadership(
                node_id=node_id,
                state=state,
                ends=(self.kept_end,),
                epoch_starts=(log.end_offset,),
                high_watermarks=(self.high_watermark,),
                lag_max_ms=lag_max_ms,
                now_ms=now_ms,
            )
        elif self.leadership is not None:
            self.leadership.lag_max_ms = lag_max_ms
            self.leadership.follow(state, now_ms)
        if self.leadership is not None:
            self.advance(self.leadership.tracks[OWN].high_watermark)
        if is_alone:
            self.leadership = None
        self._set_express()
        self._keep_soon()

    def stand_by(self, state: PartitionState, node_id: int) -> None:
        """Another broker leads, or none does: whoever waits here is told to look elsewhere."""
        has_leader = state.leader not in (NO_LEADER, node_id)
        if self.is_leader or self.leader_epoch != state.leader_epoch or has_leader != (self.following is not None):
            self.following = Following(self.log, self.high_watermark) if has_leader else None
        self.leader_epoch = state.leader_epoch
        if self.is_leader:
            self.is_leader = False
            self.leadership = None
            self._set_express()
            self._wake_all()
        self._keep_soon()

    def settle(self) -> None:
        """What this follower has, or has no more, was changed by its leader's answer."""
        assert self.following is not None
        mark = self.following.high_watermark
        if mark < self.high_watermark:
            self.high_watermark = mark  # what was thought committed is taken back: only after an unclean election
        self.advance(mark)

    def took(self) -> None:
        """A follower has appended what its leader sent."""
        self._keep_soon()

    def _keep_soon(self) -> None:
        """Have the log made as safe as the topic wants it. One that was killed may have left it otherwise."""
        if not self.is_kept:
            self.on_append(self)

    @property
    def is_kept(self) -> bool:
        """Whether everything in the log is as safe as the topic wants it."""
        return self.kept_end >= self.log.end_offset

    @property
    def kept_end(self) -> int:
        """Everything below is as safe as the topic wants it."""
        log = self.log
        return log.end_offset if log.settings.flush is Flush.OS else min(log.checkpoint.synced_to, log.end_offset)

    @property
    def is_settled(self) -> bool:
        """Whether it is known how far the log is committed: not yet, when a leader is new (KIP-207)."""
        return self.leadership is None or self.leadership.tracks[OWN].is_settled

    @property
    def in_sync(self) -> int:
        """How many replicas have all that is committed."""
        return 1 if self.leadership is None else len(self.leadership.state.isr)

    def check_in_sync(self) -> None:
        """Whether enough replicas would have a batch before it is acknowledged to someone who wants all of them."""
        wanted = self.log.settings.min_insync_replicas
        if self.in_sync < wanted:
            raise NotEnoughReplicas(
                f"{self.name} has {self.in_sync} replicas in sync, min.insync.replicas is {wanted}"
            )

    def fetched(self, node_id: int, broker_epoch: int, offset: int, now_ms: int) -> None:
        """A follower asks from an offset on: it has everything before that."""
        lead = self.leadership
        if lead is not None and lead.fetched(node_id, broker_epoch, OWN, offset, now_ms):
            self.advance(lead.tracks[OWN].high_watermark)

    def configure(self, settings: LogSettings) -> None:
        """The topic's settings may have changed."""
        if self._log is not None:
            self._log.settings = settings
            self._set_express()

    def _set_express(self) -> None:
        settings = self.log.settings
        # Nor with the broker's times: they are set in place, and the lane offers a batch twice if it must.
        is_plain = settings.flush is Flush.OS and not may_open(settings) and not settings.log_append_time
        self.is_express = is_plain and self.is_leader and self.leadership is None

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
            if self._until or self._watchers or self.leadership is not None:
                self.keep(log.end_offset)
            else:
                self.high_watermark = log.end_offset
        elif self.high_watermark <= appended.last_offset:
            self.on_append(self)
        return appended

    def keep(self, end: int) -> None:
        """This broker has everything below an offset, as safe as the topic wants it: followers may have it too."""
        lead = self.leadership
        if not self.is_leader:
            self.on_kept(self)
            return
        if lead is None:
            self.advance(end)
            return
        if lead.appended(OWN, end):
            self.advance(lead.tracks[OWN].high_watermark)
        if self._followers:
            self._wake_followers()

    def append_own(self, batch: bytearray, now_ms: int) -> Appended:
        """Append a batch that this broker made, in a producer's transaction or in none; see Log.append_own."""
        log = self.log
        appended = log.append_own(batch, self.leader_epoch, now_ms)
        if log.settings.flush is Flush.OS:
            self.keep(log.end_offset)
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
        """Call once, when the high watermark has reached an offset, or never will here; maybe at once."""
        if self.high_watermark >= end_offset or self._log is None or not self.is_leader:
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

    def watch_tail(self, waiter: Waiter) -> int:
        """As `watch`, for a follower: at the next append, committed or not."""
        ticket = next(self._numbers)
        self._followers[ticket] = waiter
        return ticket

    def unwatch(self, ticket: int) -> None:
        self._watchers.pop(ticket, None)
        self._followers.pop(ticket, None)

    def _wake_watchers(self) -> None:
        waiting, self._watchers = self._watchers, {}
        for waiter in waiting.values():
            waiter()

    def _wake_followers(self) -> None:
        waiting, self._followers = self._followers, {}
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

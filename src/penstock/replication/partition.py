"""A replica of a partition on this broker: its log, its role as leader or follower, appends, and waiters."""

from collections.abc import Callable
from typing import Final

from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import NotLeaderOrFollower
from penstock.foundation.ids import INTERNAL_TOPICS, TopicIdPartition, TopicPartition
from penstock.log.admission import may_decompress
from penstock.log.log import Appended, Log
from penstock.log.producer_state import NO_OFFSET
from penstock.log.settings import Flush, LogSettings
from penstock.records.build import Marker, control_marker
from penstock.replication.errors import FencedLeaderEpoch as FencedLeaderEpoch
from penstock.replication.errors import InternalTopicWrite
from penstock.replication.errors import NotEnoughReplicas as NotEnoughReplicas
from penstock.replication.errors import UnknownLeaderEpoch as UnknownLeaderEpoch
from penstock.replication.follower import Following
from penstock.replication.leadership import Leadership, Track
from penstock.replication.replica_log import ReplicaLog
from penstock.replication.visibility_filter import VisibilityFilter
from penstock.replication.waiters import ChangeWaiters, OffsetWaiters, Waiter
from penstock.wire.schema import Buffer

OWN: Final = 0
COMPANION: Final = 1
"""Index of the companion log in `Partition.tracks`; OWN is that of the partition's own log."""


class Partition(ReplicaLog):
    """One replica of a partition.

    It starts as a leader without followers, whose records are all committed. Its companion log, which holds state
    about the partition, is a Partition too: it has the same role, and only brokers can find it.
    """

    def __init__(
        self,
        *,
        topic_id: bytes,
        name: TopicPartition,
        leader_epoch: int,
        log: Log | None,
        high_watermark: int | None = None,
        companion_of: "Partition | None" = None,
    ) -> None:
        self.topic_id: Final = topic_id
        """The id by which brokers fetch this log: the topic id, or the companion id of a companion log."""
        self.name: Final = name
        self.tp: Final[TopicIdPartition] = (
            TopicIdPartition(topic_id, name.partition) if companion_of is None else companion_of.tp
        )
        """The topic-partition whose state in the store applies to this log."""
        self.is_internal: Final = name.topic in INTERNAL_TOPICS
        """Whether only brokers write to this partition: see `append_own`."""
        self.tracks: tuple[Partition, ...] = (self,)
        """The partition and its companion log, if any; both have the same tuple."""
        self._track: Final = OWN if companion_of is None else COMPANION
        super().__init__(log)
        self.leader_epoch = leader_epoch
        self.on_append: Callable[[Partition], None] = _ignore
        """Callback after each append that needs a flush."""
        self.on_durable: Callable[[Partition], None] = _ignore
        """Callback when the log of a follower is durable, so that it may be fetched again."""
        self.on_marker: Callable[[int, bool], None] | None = None
        """Callback after a transaction marker is appended, with the producer id and whether it commits."""
        self.is_leader = True
        self.leadership: Leadership | None = None
        """State of the leader; None unless this broker leads and the partition has followers."""
        self.following: Following | None = None
        """State of the follower; None unless another broker leads."""
        self._until, self._until_durable = OffsetWaiters(), OffsetWaiters()
        self._watchers, self._followers = ChangeWaiters(), ChangeWaiters()
        self.high_watermark = (log.end_offset if log else 0) if high_watermark is None else high_watermark
        self.visibility: VisibilityFilter | None = None
        """Filter that hides delayed messages from consumers until they are due; None if there are none."""

    def go_offline(self, reason: str) -> None:
        """Takes the partition offline: requests get a storage error from now on, and all waiters are woken."""
        for track in self.tracks:
            track._take_offline(reason)
        for track in self.tracks:
            track._wake_all()

    def _wake_all(self) -> None:
        for waiting in (self._watchers, self._followers, self._until, self._until_durable):
            if waiting.waiting:
                waiting.wake()

    # -- its companion

    @property
    def companion(self) -> "Partition | None":
        return self.tracks[COMPANION] if self._track == OWN and len(self.tracks) > COMPANION else None

    def take_companion(self, companion: "Partition") -> None:
        """Adds a companion log, which gets its role with the next change of the partition state."""
        self.tracks = companion.tracks = (self, companion)

    def drop_companion(self) -> None:
        """Removes the companion log."""
        companion = self.companion
        if companion is not None:
            self.tracks, companion.tracks = (self,), (companion,)
            if self.leadership is not None:
                self.leadership.drop_track()

    # -- its role

    def lead(self, state: PartitionState, node_id: int, lag_max_ms: int, now_ms: int) -> None:
        """Becomes leader in the leader epoch of `state`; if it already leads, adopts the new replicas and ISR."""
        is_new = not self.is_leader or self.leader_epoch != state.leader_epoch
        for track in self.tracks:
            track._begin_to_lead(state.leader_epoch)
        lead = None if is_new else self.leadership
        if state.replicas == (node_id,):
            lead = None
        elif lead is None:
            lead = Leadership(
                node_id=node_id,
                state=state,
                tracks=[track._as_led() for track in self.tracks],
                lag_max_ms=lag_max_ms,
                now_ms=now_ms,
            )
        else:
            lead.lag_max_ms = lag_max_ms
            for track in self.tracks[len(lead.tracks) :]:
                lead.add_track(track._as_led())
            lead.follow(state, now_ms)
        for track in self.tracks:  # before any waiter is woken: it may append to any of these logs
            track.leadership = lead
            track._update_fast_path()
        for track in self.tracks:
            track.advance(track.durable_end if lead is None else lead.tracks[track._track].high_watermark)
            track._flush_soon()

    def _begin_to_lead(self, epoch: int) -> None:
        if not self.is_leader or self.leader_epoch != epoch:
            self.log.note_epoch(epoch, self.log.end_offset)
            self.leader_epoch = epoch
            self.is_leader = True
            self.following = None

    def _as_led(self) -> Track:
        return Track(end=self.durable_end, epoch_start=self.log.end_offset, high_watermark=self.high_watermark)

    def become_follower(self, state: PartitionState, node_id: int) -> None:
        """Becomes a follower of another leader (or without a leader), and wakes all waiters."""
        has_leader = state.leader not in (NO_LEADER, node_id)
        for track in self.tracks:
            track._become_follower(state.leader_epoch, has_leader)

    def _become_follower(self, epoch: int, has_leader: bool) -> None:
        if self.is_leader or self.leader_epoch != epoch or has_leader != (self.following is not None):
            self.following = Following(self.log, self.high_watermark) if has_leader else None
        self.leader_epoch = epoch
        if self.is_leader:
            self.is_leader = False
            self.leadership = None
            self._update_fast_path()
            self._wake_all()
        self._flush_soon()

    def settle(self) -> None:
        """Adopts the leader's high watermark after a Fetch response was applied."""
        assert self.following is not None
        mark = self.following.high_watermark
        if mark < self.high_watermark:
            self.high_watermark = mark  # only after an unclean election
        self.advance(mark)

    def took(self) -> None:
        """Requests a flush of the records that a follower has appended."""
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Requests a flush if the log is not durable, as it may be after a crash."""
        if not self.is_durable:
            self.on_append(self)

    @property
    def is_durable(self) -> bool:
        """Whether all records are durable; with `flush=group` this means synced."""
        return self.durable_end >= self.log.end_offset

    @property
    def durable_end(self) -> int:
        """The offset below which all records are durable; with `flush=group` this means synced."""
        log = self.log
        return log.end_offset if log.settings.flush is Flush.OS else min(log.checkpoint.synced_to, log.end_offset)

    @property
    def is_settled(self) -> bool:
        """Whether the high watermark is current: it is not at the beginning of a leader epoch (KIP-207)."""
        return self.leadership is None or self.leadership.tracks[self._track].is_settled

    @property
    def in_sync(self) -> int:
        """Number of in-sync replicas."""
        return 1 if self.leadership is None else len(self.leadership.state.isr)

    def check_in_sync(self) -> None:
        """Raises NotEnoughReplicas if fewer than min.insync.replicas are in sync (for acks=all)."""
        if not self.is_safe:
            wanted = self.log.settings.min_insync_replicas
            raise NotEnoughReplicas(
                f"{self.name} has {self.in_sync} replicas in sync, min.insync.replicas is {wanted}"
            )

    @property
    def is_safe(self) -> bool:
        """Whether min.insync.replicas are in sync, or all replicas if there are fewer (KIP-966)."""
        lead = self.leadership
        if lead is None:
            return True
        return len(lead.state.isr) >= min(self.log.settings.min_insync_replicas, len(lead.state.replicas))

    def fetched(self, node_id: int, broker_epoch: int, offset: int, start_offset: int, now_ms: int) -> None:
        """Records a fetch of a follower, which has all records from `start_offset` up to `offset`."""
        lead = self.leadership
        if lead is not None and lead.fetched(node_id, broker_epoch, self._track, offset, now_ms, start_offset):
            self.advance(lead.tracks[self._track].high_watermark)

    def configure(self, settings: LogSettings) -> None:
        """Applies new settings of the topic."""
        if self._log is not None:
            self._log.configure(settings)
            self._update_fast_path()

    def _update_fast_path(self) -> None:
        settings = self.log.settings
        # Not with log append time: it is written in place, and the fast path may offer a batch twice.
        is_plain = settings.flush is Flush.OS and not may_decompress(settings) and not settings.log_append_time
        is_plain = is_plain and not settings.delivery_delay_ms
        self.allows_fast_path = is_plain and self.is_leader and self.leadership is None

    def check_epoch(self, epoch: int) -> None:
        """Raises FencedLeaderEpoch or UnknownLeaderEpoch if a client sent another leader epoch (KIP-320)."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name} has leader epoch {self.leader_epoch}, the request has {epoch}")
        raise UnknownLeaderEpoch(f"{self.name} has leader epoch {self.leader_epoch}, the request has {epoch}")

    # -- writing

    def append(self, batch: bytearray | memoryview, now_ms: int, may_begin: bool = False) -> Appended:
        """Appends the batch of a producer. It is committed once `high_watermark` has passed its last offset.

        `may_begin`: whether it may begin a transaction; see Log.append. Raises InvalidTopic for an internal topic.
        """
        log = self._log or self.log
        if not self.is_leader:
            self._refuse()
        if self.is_internal:
            raise InternalTopicWrite(self.name)
        appended = log.append(batch, self.leader_epoch, now_ms, may_begin)
        if self.allows_fast_path and not self._watchers.waiting and not self._until.waiting:
            self.high_watermark = log.end_offset
        elif log.settings.flush is Flush.OS:
            self.mark_durable(log.end_offset)
        elif self.high_watermark <= appended.last_offset:
            self.on_append(self)
        return appended

    def _refuse(self) -> None:
        raise NotLeaderOrFollower(f"{self.name} is led by another broker now")

    def mark_durable(self, end: int) -> None:
        """Records that the log is durable below `end`: advances the high watermark and wakes followers."""
        lead = self.leadership
        if not self.is_leader:
            self.on_durable(self)
            return
        self._until_durable.reach(end)
        if lead is None:
            self.advance(end)
            return
        if lead.appended(self._track, end):
            self.advance(lead.tracks[self._track].high_watermark)
        self._followers.wake()

    @property
    def has_followers(self) -> bool:
        """Whether another broker is in the ISR, so that it could be elected as leader."""
        return self.leadership is not None and len(self.leadership.maximal_isr) > 1

    def append_own(
        self, batch: bytearray, now_ms: int, marker: Marker | None = None, any_size: bool = False
    ) -> Appended:
        """Appends a batch that this broker itself has built, such as a transaction marker; see Log.append_own."""
        log = self.log
        if not self.is_leader:
            self._refuse()
        appended = log.append_own(batch, self.leader_epoch, now_ms, marker, any_size)
        if log.settings.flush is Flush.OS:
            self.mark_durable(log.end_offset)
        else:
            self.on_append(self)
        if log.has_transactions:  # drops transactions that have ended
            log.last_stable_offset(self.high_watermark)
        return appended

    def write_marker(
        self,
        producer: ProducerKey,
        committed: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Appends a marker that ends a transaction; harmless if no transaction is open, as when it is repeated.

        Raises InvalidProducerEpoch if a newer epoch of the producer has written here (with transaction version 2:
        also if the producer has written since), TransactionCoordinatorFenced if a newer coordinator has.
        """
        self.log.producers.check_marker(producer, coordinator_epoch, transaction_version)
        marker = control_marker(
            commit=committed,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp_ms=now_ms,
        )
        appended = self.append_own(marker, now_ms, Marker(committed, coordinator_epoch))
        if self.on_marker is not None:
            self.on_marker(producer.producer_id, committed)
        return appended

    def marker_offset(self, producer_id: int) -> int:
        """Returns the offset of the last transaction marker of a producer, which changes when a transaction ends."""
        producer = self.log.producers.by_id.get(producer_id)
        return NO_OFFSET if producer is None else producer.marker_offset

    def knows(self, producer_id: int) -> bool:
        """Whether the log has state of a producer: not for a new producer, nor after its state has expired."""
        return producer_id in self.log.producers.by_id

    def advance(self, high_watermark: int) -> None:
        """Advances the high watermark, and wakes producers and consumers that wait for it."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        self._until.reach(high_watermark)
        self._watchers.wake()

    # -- waiting

    def has_committed(self, end_offset: int) -> bool:
        """Whether this broker leads and the high watermark has reached `end_offset`."""
        return self._log is not None and self.is_leader and self.high_watermark >= end_offset

    def when_committed(self, end_offset: int, waiter: Waiter) -> None:
        """Calls `waiter` once, when the high watermark has reached `end_offset` or this broker no longer leads."""
        if self.high_watermark >= end_offset or self._log is None or not self.is_leader:
            waiter()
            return
        self._until.add(end_offset, waiter)

    def when_durable(self, end_offset: int, waiter: Waiter) -> None:
        """Same as `when_committed`, but for the durable end offset of this broker."""
        if self._log is None or self.durable_end >= end_offset or not self.is_leader:
            waiter()
            return
        self._until_durable.add(end_offset, waiter)

    def watch(self, waiter: Waiter) -> int:
        """Calls `waiter` once, when the high watermark advances. Returns a ticket for `unwatch`.

        The last stable offset needs no watch of its own: it advances when a transaction marker is committed.
        """
        return self._watchers.add(waiter)

    def unwatch(self, ticket: int) -> None:
        self._watchers.remove(ticket)

    def tell_readers(self) -> None:
        """Wakes waiting consumers, since delayed messages have become visible."""
        self._watchers.wake()

    def watch_tail(self, waiter: Waiter) -> int:
        """Same as `watch`, but for a follower: called at the next append, committed or not."""
        return self._followers.add(waiter)

    def unwatch_tail(self, ticket: int) -> None:
        self._followers.remove(ticket)

    # -- reading

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: all transactions with records below it have ended."""
        log = self.log
        return log.last_stable_offset(self.high_watermark) if log.has_transactions else self.high_watermark

    def read(
        self, offset: int, max_bytes: int, *, blocking: bool = False, force: bool = True, stable: bool = False
    ) -> Buffer:
        """Reads batches from `offset` up to the high watermark; if `stable`, up to the last stable offset."""
        limit = self.last_stable_offset if stable else self.high_watermark
        if self.visibility is not None:
            limit = self.visibility.visible_to(limit)
        return self.log.read(offset, max_bytes, limit, blocking=blocking, force=force)


def _ignore(partition: Partition) -> None:
    """Default callback, which does nothing."""

"""A replica of a partition: leader or follower role, appends, companion log (queue state or delayed messages)."""

from collections.abc import Callable
from typing import Final

from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import NotLeaderOrFollower
from penstock.foundation.ids import INTERNAL_TOPICS, TopicIdPartition, TopicPartition
from penstock.log.admission import may_change
from penstock.log.log import Appended, Log
from penstock.log.settings import Flush, LogSettings
from penstock.records.build import Marker, control_marker
from penstock.replication.errors import (
    FencedLeaderEpoch,
    InternalTopicWrite,
    NotEnoughReplicas,
    UnknownLeaderEpoch,
)
from penstock.replication.follower import Following
from penstock.replication.leadership import Leadership, LedLog
from penstock.replication.replica_log import ReplicaLog


class Partition(ReplicaLog):
    """One replica of a partition.

    A new Partition leads without followers, and all its records are committed. Its companion log (queue state or
    delayed messages) is a Partition object too: it has the same role, and clients cannot access it.
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
        super().__init__(log, high_watermark)
        self.topic_id: Final = topic_id
        """The id by which brokers fetch this log: the topic id or, for a companion log (second log of a partition,
        for queue state or delayed messages), `Topic.companion`."""
        self.name: Final = name
        self.tp: Final[TopicIdPartition] = (
            TopicIdPartition(topic_id, name.partition) if companion_of is None else companion_of.tp
        )
        """The partition whose leader and replicas also apply to this log; of a companion log, the partition it
        belongs to."""
        self.is_internal = name.topic in INTERNAL_TOPICS or (log is not None and log.settings.broker_writes)
        """Whether only brokers write to this partition: see `append_own`."""
        self.validates_schemas = False
        """Whether a batch must be validated before `append`, also on the fast path."""
        self.with_companion: tuple[Partition, ...] = (self,)
        """This partition and its companion log, if any; both Partition objects have the same tuple."""
        self._index: Final = 0 if companion_of is None else 1
        """Index of this log in `with_companion` and in `leadership.logs`: 0 for the partition's own log, 1 for its
        companion log (second log: queue state or delayed messages)."""
        self.leader_epoch = leader_epoch
        self.leadership: Leadership | None = None
        """State of the leader; None unless this broker leads and the partition has followers."""
        self.following: Following | None = None
        """State of this replica as a follower; None unless another broker leads the partition."""
        self.on_append: Callable[[Partition], None] = _ignore
        """Callback after each append that needs a flush."""
        self.on_durable: Callable[[Partition], None] = _ignore
        """Callback when the log of a follower has become durable, so that the partition may be fetched again."""
        self.on_marker: Callable[[int, bool], None] | None = None
        """Callback after a transaction marker is appended, with the producer id and whether it commits."""

    def go_offline(self, reason: str) -> None:
        """Takes the partition offline: all waiters are woken, and requests get a storage error from now on."""
        for one in self.with_companion:
            one._take_offline(reason)
        for one in self.with_companion:
            one._wake_all()

    # -- its companion

    @property
    def companion(self) -> "Partition | None":
        return self.with_companion[1] if self._index == 0 and len(self.with_companion) > 1 else None

    def take_companion(self, companion: "Partition") -> None:
        """Adds a companion log (second log, for queue state or delayed messages). It leads or follows from the next
        change of the partition state on."""
        self.with_companion = companion.with_companion = (self, companion)

    def drop_companion(self) -> None:
        """Removes the companion log (queue state or delayed messages), if any, from this partition."""
        companion = self.companion
        if companion is not None:
            self.with_companion, companion.with_companion = (self,), (companion,)
            if self.leadership is not None:
                self.leadership.logs.pop()

    # -- its role

    def lead(self, state: PartitionState, node_id: int, lag_max_ms: int, now_ms: int) -> None:
        """Becomes leader in the leader epoch of `state`; if it already leads, adopts the new replicas and ISR."""
        is_new = not self.is_leader or self.leader_epoch != state.leader_epoch
        for one in self.with_companion:
            one._begin_to_lead(state.leader_epoch)
        lead = None if is_new else self.leadership
        if state.replicas == (node_id,):
            lead = None
        elif lead is None:
            logs = [one._as_led() for one in self.with_companion]
            lead = Leadership(node_id=node_id, state=state, logs=logs, lag_max_ms=lag_max_ms, now_ms=now_ms)
        else:
            lead.lag_max_ms = lag_max_ms
            lead.logs.extend(one._as_led() for one in self.with_companion[len(lead.logs) :])
            lead.follow(state, now_ms)
        for one in self.with_companion:  # before any waiter is woken: it may append to any of these logs
            one.leadership = lead
            one._update_fast_path()
        for one in self.with_companion:
            one.advance(one.durable_end if lead is None else lead.logs[one._index].high_watermark)
            one.flush_soon()

    def _begin_to_lead(self, epoch: int) -> None:
        if not self.is_leader or self.leader_epoch != epoch:
            self.log.note_epoch(epoch, self.log.end_offset)
            self.leader_epoch = epoch
            self.is_leader = True
            self.following = None

    def _as_led(self) -> LedLog:
        return LedLog(end=self.durable_end, epoch_start=self.log.end_offset, high_watermark=self.high_watermark)

    def become_follower(self, state: PartitionState, node_id: int) -> None:
        """Stops leading, and wakes all waiters. Follows the leader in `state`; if there is none, does not fetch."""
        has_leader = state.leader not in (NO_LEADER, node_id)
        for one in self.with_companion:
            one._become_follower(state.leader_epoch, has_leader)

    def _become_follower(self, epoch: int, has_leader: bool) -> None:
        if self.is_leader or self.leader_epoch != epoch or has_leader != (self.following is not None):
            self.following = Following(self.log, self.high_watermark) if has_leader else None
        self.leader_epoch = epoch
        if self.is_leader:
            self.is_leader = False
            self.leadership = None
            self._update_fast_path()
            self._wake_all()
        self.flush_soon()

    def adopt_leader_high_watermark(self) -> None:
        """Adopts the leader's high watermark after a follower has applied a Fetch response, or was truncated."""
        assert self.following is not None
        mark = self.following.high_watermark
        if mark < self.high_watermark:
            self.high_watermark = mark  # only after an unclean election
        self.advance(mark)

    def configure(self, settings: LogSettings) -> None:
        """Applies new settings of the topic."""
        if self._log is not None:
            self._log.configure(settings)
            self.is_internal = self.name.topic in INTERNAL_TOPICS or settings.broker_writes
            self._update_fast_path()

    def _update_fast_path(self) -> None:
        settings = self.log.settings
        # Not with log append time: it is written into the batch, which the handler gets if the fast path fails.
        is_plain = settings.flush is Flush.OS and not may_change(settings) and not settings.log_append_time
        is_plain = is_plain and not settings.delivery_delay_ms and not settings.broker_writes
        self.validates_schemas = settings.validates_schemas
        self.allows_fast_path = is_plain and self.is_leader and self.leadership is None

    def check_epoch(self, epoch: int) -> None:
        """Raises FencedLeaderEpoch or UnknownLeaderEpoch if a client sent another leader epoch (KIP-320)."""
        if epoch >= 0 and epoch != self.leader_epoch:
            error = FencedLeaderEpoch if epoch < self.leader_epoch else UnknownLeaderEpoch
            raise error(f"{self.name} has leader epoch {self.leader_epoch}, the request has {epoch}")

    # -- its followers

    @property
    def is_settled(self) -> bool:
        """Whether the high watermark is current. At the start of a leader epoch it may be outdated (KIP-207)."""
        return self.leadership is None or self.leadership.logs[self._index].is_settled

    @property
    def has_followers(self) -> bool:
        """Whether another broker is in the ISR and could therefore be elected as leader."""
        return self.leadership is not None and len(self.leadership.maximal_isr) > 1

    @property
    def is_safe(self) -> bool:
        """Whether min.insync.replicas are in sync, or all replicas if there are fewer (KIP-966)."""
        lead = self.leadership
        if lead is None:
            return True
        return len(lead.state.isr) >= min(self.log.settings.min_insync_replicas, len(lead.state.replicas))

    def check_in_sync(self) -> None:
        """Raises NotEnoughReplicas if fewer than min.insync.replicas are in sync (for acks=all)."""
        lead = self.leadership
        if lead is not None and not self.is_safe:
            count, wanted = len(lead.state.isr), self.log.settings.min_insync_replicas
            raise NotEnoughReplicas(f"{self.name} has {count} replicas in sync, min.insync.replicas is {wanted}")

    def fetched(self, node_id: int, broker_epoch: int, offset: int, start_offset: int, now_ms: int) -> None:
        """Records a fetch of a follower, which has all records from `start_offset` up to `offset`."""
        lead = self.leadership
        if lead is not None and lead.fetched(node_id, broker_epoch, self._index, offset, now_ms, start_offset):
            self.advance(lead.logs[self._index].high_watermark)

    # -- appending

    def append(self, batch: bytearray | memoryview, now_ms: int, may_begin: bool = False) -> Appended:
        """Appends a producer's batch, which is committed once `high_watermark` has passed the batch's last offset.
        `may_begin`: whether the batch may begin a transaction; see Log.append. Raises InvalidTopic for an internal
        topic."""
        log = self._log or self.log
        if not self.is_leader:
            self._refuse_append()
        if self.is_internal:
            raise InternalTopicWrite(self.name)
        appended = log.append(batch, self.leader_epoch, now_ms, may_begin)
        if self.allows_fast_path and not self._consumers.waiting and not self._until_committed.waiting:
            self.high_watermark = log.end_offset
        else:
            self._on_appended(log)
        return appended

    def append_own(
        self, batch: bytearray, now_ms: int, marker: Marker | None = None, any_size: bool = False
    ) -> Appended:
        """Appends a batch that this broker itself has built, such as a transaction marker; see Log.append_own."""
        log = self.log
        if not self.is_leader:
            self._refuse_append()
        appended = log.append_own(batch, self.leader_epoch, now_ms, marker, any_size)
        self._on_appended(log)
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
        also if the same epoch has an open transaction), and TransactionCoordinatorFenced if a newer coordinator has
        written here.
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

    def _refuse_append(self) -> None:
        raise NotLeaderOrFollower(f"{self.name} is led by another broker now")

    def _on_appended(self, log: Log) -> None:
        """Marks appended records as durable (`flush=os`), or requests their fsync (`flush=group`)."""
        if log.settings.flush is Flush.OS:
            self.mark_durable(log.end_offset)
        elif self.high_watermark < log.end_offset:
            self.on_append(self)

    def flush_soon(self) -> None:
        """Requests a flush if the log has records that are not durable, as after a follower's append or a crash."""
        if not self.is_durable:
            self.on_append(self)

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
        if lead.appended(self._index, end):
            self.advance(lead.logs[self._index].high_watermark)
        self._followers.wake()


def _ignore(partition: Partition) -> None:
    """Default callback, which does nothing."""

"""A replica of a partition on this broker: its log, whether it leads or follows, and who waits for it to grow."""

from collections.abc import Callable
from typing import Final

from penstock.cluster.image import NO_LEADER, PartitionState, Place
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import NotLeaderOrFollower
from penstock.foundation.ids import INTERNAL_TOPICS, TopicPartition
from penstock.log.admission import may_open
from penstock.log.log import Appended, Log
from penstock.log.producer_state import NO_OFFSET
from penstock.log.settings import Flush, LogSettings
from penstock.records.build import Marker, control_marker
from penstock.replication.errors import FencedLeaderEpoch as FencedLeaderEpoch
from penstock.replication.errors import InternalTopicWrite
from penstock.replication.errors import NotEnoughReplicas as NotEnoughReplicas
from penstock.replication.errors import UnknownLeaderEpoch as UnknownLeaderEpoch
from penstock.replication.following import Following
from penstock.replication.leadership import Leadership, Track
from penstock.replication.replica_log import ReplicaLog
from penstock.replication.visibility_filter import VisibilityFilter
from penstock.replication.waiting import News, Until, Waiter
from penstock.wire.schema import Buffer

OWN: Final = 0
COMPANION: Final = 1
"""The numbers of a partition's logs among its tracks."""


class Partition(ReplicaLog):
    """One replica.

    It leads alone, from the start, until it is told otherwise: then all that it has is committed.
    State that belongs to a partition lies in a log of its own beside it: its companion, a partition too, which leads,
    follows and goes offline with it, and which nobody finds but brokers.
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
        """What brokers ask for its log by; a companion's is its own."""
        self.name: Final = name
        self.place: Final[Place] = Place(topic_id, name.partition) if companion_of is None else companion_of.place
        """Where the store keeps its state."""
        self.is_internal: Final = name.topic in INTERNAL_TOPICS
        """Only brokers write to it: see `append_own`."""
        self.tracks: tuple[Partition, ...] = (self,)
        """Itself and its companion, if it has one: the same for both."""
        self._track: Final = OWN if companion_of is None else COMPANION
        super().__init__(log)
        self.leader_epoch = leader_epoch
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
        self._until, self._until_kept = Until(), Until()
        self._watchers, self._followers = News(), News()
        self.high_watermark = (log.end_offset if log else 0) if high_watermark is None else high_watermark
        self.visibility: VisibilityFilter | None = None
        """Of a topic whose messages are delayed."""

    def go_offline(self, reason: str) -> None:
        """Answer with a storage error from now on; everyone who waits is told to look again."""
        for track in self.tracks:
            track._take_offline(reason)
        for track in self.tracks:
            track._wake_all()

    def _wake_all(self) -> None:
        for waiting in (self._watchers, self._followers, self._until, self._until_kept):
            if waiting.waiting:
                waiting.wake()

    # -- its companion

    @property
    def companion(self) -> "Partition | None":
        return self.tracks[COMPANION] if self._track == OWN and len(self.tracks) > COMPANION else None

    def take_companion(self, companion: "Partition") -> None:
        """It leads or follows from the next time that this partition is told to."""
        self.tracks = companion.tracks = (self, companion)

    def drop_companion(self) -> None:
        """Whatever it was needed for is no more."""
        companion = self.companion
        if companion is not None:
            self.tracks, companion.tracks = (self,), (companion,)
            if self.leadership is not None:
                self.leadership.drop_track()

    # -- leading and following

    def lead(self, state: PartitionState, node_id: int, lag_max_ms: int, now_ms: int) -> None:
        """Lead, from now on, in the epoch of a state; or go on leading in it, as others come and go."""
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
            track._set_express()
        for track in self.tracks:
            track.advance(track.kept_end if lead is None else lead.tracks[track._track].high_watermark)
            track._keep_soon()

    def _begin_to_lead(self, epoch: int) -> None:
        if not self.is_leader or self.leader_epoch != epoch:
            self.log.note_epoch(epoch, self.log.end_offset)
            self.leader_epoch = epoch
            self.is_leader = True
            self.following = None

    def _as_led(self) -> Track:
        return Track(end=self.kept_end, epoch_start=self.log.end_offset, high_watermark=self.high_watermark)

    def become_follower(self, state: PartitionState, node_id: int) -> None:
        """Another broker leads, or none does: whoever waits here is told to look elsewhere."""
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
        return self.leadership is None or self.leadership.tracks[self._track].is_settled

    @property
    def in_sync(self) -> int:
        """How many replicas have all that is committed."""
        return 1 if self.leadership is None else len(self.leadership.state.isr)

    def check_in_sync(self) -> None:
        """Whether enough replicas would have a batch before it is acknowledged to someone who wants all of them."""
        if not self.is_safe:
            wanted = self.log.settings.min_insync_replicas
            raise NotEnoughReplicas(
                f"{self.name} has {self.in_sync} replicas in sync, min.insync.replicas is {wanted}"
            )

    @property
    def is_safe(self) -> bool:
        """Whether enough replicas are in sync; of fewer than are wanted, all (KIP-966)."""
        lead = self.leadership
        if lead is None:
            return True
        return len(lead.state.isr) >= min(self.log.settings.min_insync_replicas, len(lead.state.replicas))

    def fetched(self, node_id: int, broker_epoch: int, offset: int, start_offset: int, now_ms: int) -> None:
        """A follower asks from an offset on: it has everything from its start up to that."""
        lead = self.leadership
        if lead is not None and lead.fetched(node_id, broker_epoch, self._track, offset, now_ms, start_offset):
            self.advance(lead.tracks[self._track].high_watermark)

    def configure(self, settings: LogSettings) -> None:
        """The topic's settings may have changed."""
        if self._log is not None:
            self._log.configure(settings)
            self._set_express()

    def _set_express(self) -> None:
        settings = self.log.settings
        # Nor with the broker's times: they are set in place, and the lane offers a batch twice if it must.
        is_plain = settings.flush is Flush.OS and not may_open(settings) and not settings.log_append_time
        is_plain = is_plain and not settings.delivery_delay_ms  # some readers must wait
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

        `may_begin`: it may be the first of a transaction here; see Log.append. Raises InvalidTopic if it is internal.
        """
        log = self._log or self.log
        if not self.is_leader:
            self._refuse()
        if self.is_internal:
            raise InternalTopicWrite(self.name)
        appended = log.append(batch, self.leader_epoch, now_ms, may_begin)
        if self.is_express and not self._watchers.waiting and not self._until.waiting:
            self.high_watermark = log.end_offset
        elif log.settings.flush is Flush.OS:
            self.keep(log.end_offset)
        elif self.high_watermark <= appended.last_offset:
            self.on_append(self)
        return appended

    def _refuse(self) -> None:  # written in another leader's epoch, nobody could tell the two logs apart
        raise NotLeaderOrFollower(f"{self.name} is led by another broker now")

    def keep(self, end: int) -> None:
        """This broker has everything below an offset, as safe as the topic wants it: followers may have it too."""
        lead = self.leadership
        if not self.is_leader:
            self.on_kept(self)
            return
        self._until_kept.reach(end)
        if lead is None:
            self.advance(end)
            return
        if lead.appended(self._track, end):
            self.advance(lead.tracks[self._track].high_watermark)
        self._followers.wake()

    @property
    def has_followers(self) -> bool:
        """Whether another broker may be elected in this one's place."""
        return self.leadership is not None and len(self.leadership.maximal_isr) > 1

    def append_own(
        self, batch: bytearray, now_ms: int, marker: Marker | None = None, any_size: bool = False
    ) -> Appended:
        """Append a batch that this broker made, in a producer's transaction or in none; see Log.append_own."""
        log = self.log
        if not self.is_leader:
            self._refuse()
        appended = log.append_own(batch, self.leader_epoch, now_ms, marker, any_size)
        if log.settings.flush is Flush.OS:
            self.keep(log.end_offset)
        else:
            self.on_append(self)
        if log.has_transactions:  # or what has ended long ago would be remembered until someone asks
            log.stable_end(self.high_watermark)
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
        appended = self.append_own(marker, now_ms, Marker(committed, coordinator_epoch))
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
        self._until.reach(high_watermark)
        self._watchers.wake()

    # -- waiting

    def has_committed(self, end_offset: int) -> bool:
        """Whether what this broker has appended below an offset is committed, as far as it can tell."""
        return self._log is not None and self.is_leader and self.high_watermark >= end_offset

    def when_committed(self, end_offset: int, waiter: Waiter) -> None:
        """Call once, when the high watermark has reached an offset, or never will here; maybe at once."""
        if self.high_watermark >= end_offset or self._log is None or not self.is_leader:
            waiter()
            return
        self._until.add(end_offset, waiter)

    def when_kept(self, end_offset: int, waiter: Waiter) -> None:
        """As `when_committed`: when this broker has everything below an offset as safe as the topic wants it."""
        if self._log is None or self.kept_end >= end_offset or not self.is_leader:
            waiter()
            return
        self._until_kept.add(end_offset, waiter)

    def watch(self, waiter: Waiter) -> int:
        """Call once, at the next advance; a ticket for `unwatch`.

        The last stable offset needs no watch of its own: a transaction has ended when its marker is committed.
        """
        return self._watchers.add(waiter)

    def unwatch(self, ticket: int) -> None:
        self._watchers.remove(ticket)

    def tell_readers(self) -> None:
        """Something can be read that could not be read before."""
        self._watchers.wake()

    def watch_tail(self, waiter: Waiter) -> int:
        """As `watch`, for a follower: at the next append, committed or not; a ticket for `unwatch_tail`."""
        return self._followers.add(waiter)

    def unwatch_tail(self, ticket: int) -> None:
        self._followers.remove(ticket)

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
        if self.visibility is not None:
            limit = self.visibility.visible_to(limit)
        return self.log.read(offset, max_bytes, limit, blocking=blocking, force=force)


def _ignore(partition: Partition) -> None:
    """Nobody listens yet."""

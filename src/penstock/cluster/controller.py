"""The controller: decides leader elections, ISR updates and cleanup for the whole cluster. Pure.

It has no state that must survive a failover: a new controller scans the metadata image and continues. Its writes
require its controller epoch, so that a controller that was paused and replaced changes nothing when it resumes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cluster import keys
from penstock.cluster.elections import elect_leader, is_imbalanced, with_leader
from penstock.cluster.image import EMPTY, NO_LEADER, ClusterImage, PartitionState, Topic
from penstock.cluster.topic_changes import OPERATIONS_MAX, plan_leftovers
from penstock.coordination.store import Check, Op, Put
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps, run_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Dynamic settings of the controller, read for every decision."""

    rebalances_leaders: bool = True
    rebalances_after_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A change that the controller makes to the state of one partition."""

    tp: TopicIdPartition
    before: PartitionState
    after: PartitionState

    @property
    def is_election(self) -> bool:
        return self.after.leader_epoch != self.before.leader_epoch

    @property
    def goes_offline(self) -> bool:
        return self.after.leader == NO_LEADER and self.before.leader != NO_LEADER

    @property
    def is_unclean(self) -> bool:
        """Whether this is an unclean leader election: acknowledged records may be lost."""
        return self.after.leader != NO_LEADER and self.after.leader not in self.before.isr


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDecision:
    """The operations of one store transaction, and when to decide next unless the metadata image changes earlier."""

    ops: tuple[Op, ...] = ()
    changes: tuple[PartitionChange, ...] = ()
    wake_at_ms: int | None = None


class Controller:
    """The controller role of this broker. `epoch_version`: the version that store key `controller-epoch` must still
    have when the controller writes."""

    def __init__(
        self,
        *,
        epoch_version: int,
        is_unclean: Callable[[Topic], bool],
        settings: Callable[[], ControllerSettings] = ControllerSettings,
    ) -> None:
        self._epoch_check: Final = Check(keys.CONTROLLER_EPOCH, epoch_version)
        self._is_unclean = is_unclean
        self._settings = settings
        self._seen = ClusterImage()
        self._elections: dict[TopicIdPartition, PartitionChange] = {}
        self._others: dict[TopicIdPartition, PartitionChange] = {}
        self._imbalanced: dict[TopicIdPartition, int] = {}
        """Partitions whose preferred leader could lead but does not, with the time when that began; oldest first."""

    def decide(self, image: ClusterImage, now_ms: int) -> ControllerDecision:
        """Scans the metadata image without interruption, and returns the store operations to execute next."""
        run_steps(self.scan(image, now_ms))
        return self.next_decision(image, now_ms)

    def next_decision(self, image: ClusterImage, now_ms: int) -> ControllerDecision:
        """Returns the next store transaction for an image that `scan` has processed: leader elections and ISR changes
        that it found, due preferred leader elections, and deletions of leftover partitions (of deleted topics and
        of failed topic changes)."""
        room = OPERATIONS_MAX - 1
        changes = [*self._first(self._elections, room)]
        changes += self._first(self._others, room - len(changes))
        wake_at_ms = None
        if len(changes) < room:
            due, wake_at_ms = self._due(image, now_ms, room - len(changes))
            changes += due
        ops: list[Op] = [
            Put(keys.partition(*changed.tp), changed.after.dump(), changed.before.version) for changed in changes
        ]
        ops += self._leftovers(image, room - len(ops))
        if not ops:
            return ControllerDecision(wake_at_ms=wake_at_ms)
        return ControllerDecision(ops=(self._epoch_check, *ops), changes=tuple(changes), wake_at_ms=wake_at_ms)

    @staticmethod
    def _first(table: dict[TopicIdPartition, PartitionChange], count: int) -> Iterator[PartitionChange]:
        return (changed for _, changed in zip(range(count), table.values(), strict=False))

    # -- scanning

    def scan(self, image: ClusterImage, now_ms: int) -> Steps[None]:
        """Finds the leader elections and ISR changes that are needed in partitions changed since the last scan; in
        all partitions if brokers have changed. Runs in time slices."""
        seen = self._seen
        everywhere = image.brokers is not seen.brokers or image.broker_configs is not seen.broker_configs
        if image.topics is seen.topics and not everywhere:
            self._seen = image
            return
        changed = image.changed_topics(seen.topics)
        for topic_id in changed:
            if topic_id in seen.topics and topic_id not in image.topics:
                for number in seen.topics[topic_id].partitions:
                    self._forget(TopicIdPartition(topic_id, number))
        for topic_id in image.topics if everywhere else changed:
            topic, before = image.topics.get(topic_id), None if everywhere else seen.topics.get(topic_id)
            if topic is not None:
                known = before.partitions if before is not None and topic.configs == before.configs else EMPTY
                yield from self._scan_topic(image, topic, known, now_ms)
        self._seen = image  # not before: an interrupted scan starts again

    def _scan_topic(
        self, image: ClusterImage, topic: Topic, known: Mapping[int, PartitionState], now_ms: int
    ) -> Steps[None]:
        """Finds the leader elections and ISR changes needed in partitions whose state differs from that in
        `known`. `next_decision` returns them."""
        brokers, unclean = image.brokers, self._is_unclean(topic)
        for number, state in topic.partitions.items():
            if state is known.get(number):
                continue
            tp = TopicIdPartition(topic.topic_id, number)
            after = elect_leader(tp, state, brokers, unclean=unclean)
            self._elections.pop(tp, None)
            self._others.pop(tp, None)
            if after is not state:
                changed = PartitionChange(tp=tp, before=state, after=after)
                (self._elections if changed.is_election else self._others)[tp] = changed
            if not is_imbalanced(tp, after, brokers):
                self._imbalanced.pop(tp, None)
            elif tp not in self._imbalanced:
                self._imbalanced[tp] = now_ms
            yield

    def _forget(self, tp: TopicIdPartition) -> None:
        self._elections.pop(tp, None)
        self._others.pop(tp, None)
        self._imbalanced.pop(tp, None)

    def _due(self, image: ClusterImage, now_ms: int, room: int) -> tuple[list[PartitionChange], int | None]:
        """Returns at most `room` due preferred leader elections, and when the next is due (None: none is pending)."""
        settings = self._settings()
        due: list[PartitionChange] = []
        if not settings.rebalances_leaders:
            return due, None
        for tp, since_ms in self._imbalanced.items():
            if tp in self._elections or tp in self._others:
                continue
            at_ms = since_ms + settings.rebalances_after_ms
            if at_ms > now_ms or len(due) == room:
                return due, at_ms
            state = image.topics[tp.topic_id].partitions[tp.partition]
            after = with_leader(state, state.replicas[0], image.brokers)
            due.append(PartitionChange(tp=tp, before=state, after=after))
        return due, None

    @staticmethod
    def _leftovers(image: ClusterImage, room: int) -> list[Op]:
        """Returns at most `room` operations that remove partitions of deleted or incomplete topics."""
        for topic_id in image.incomplete:
            ops = plan_leftovers(image, topic_id, room)
            if ops:
                return ops
        return []

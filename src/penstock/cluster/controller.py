"""The controller: what must be written next so that every partition is led and held as it should be. Pure.

It has no state that must survive. Whoever becomes the controller looks at the image and goes on; what it writes is
conditional on its epoch, so that one that was paused changes nothing when it wakes up.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cluster import keys
from penstock.cluster.elections import lead, prefers_another, settle
from penstock.cluster.image import EMPTY, NO_LEADER, ClusterImage, PartitionState, Place, Topic
from penstock.cluster.topic_changes import OPERATIONS_MAX, plan_leftovers
from penstock.coordination.store import Check, Op, Put
from penstock.foundation.steps import Steps, run_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Read anew at every look."""

    rebalances_leaders: bool = True
    rebalances_after_ms: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A partition that the controller changes."""

    place: Place
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
        """Whether what was acknowledged may be gone."""
        return self.after.leader != NO_LEADER and self.after.leader not in self.before.isr


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the controller wants: one transaction, and when to look again if nothing else happens."""

    ops: tuple[Op, ...] = ()
    changes: tuple[Changed, ...] = ()
    wake_at_ms: int | None = None


class Controller:
    """One broker's time as the controller. `epoch_version`: the version of the controller epoch that it has taken."""

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
        self._elections: dict[Place, Changed] = {}
        self._others: dict[Place, Changed] = {}
        self._imbalanced: dict[Place, int] = {}
        """Partitions whose preferred leader could lead, and since when; the oldest first."""

    def decide(self, image: ClusterImage, now_ms: int) -> Orders:
        """Look at the image. The same orders again, until they are carried out or the image is another."""
        run_steps(self.look(image, now_ms))
        return self.orders(image, now_ms)

    def orders(self, image: ClusterImage, now_ms: int) -> Orders:
        """What is to be done about an image that was looked at."""
        room = OPERATIONS_MAX - 1
        changes = [*self._first(self._elections, room)]
        changes += self._first(self._others, room - len(changes))
        wake_at_ms = None
        if len(changes) < room:
            due, wake_at_ms = self._due(image, now_ms, room - len(changes))
            changes += due
        ops: list[Op] = [
            Put(keys.partition(*changed.place), changed.after.dump(), changed.before.version) for changed in changes
        ]
        ops += self._leftovers(image, room - len(ops))
        if not ops:
            return Orders(wake_at_ms=wake_at_ms)
        return Orders(ops=(self._epoch_check, *ops), changes=tuple(changes), wake_at_ms=wake_at_ms)

    @staticmethod
    def _first(table: dict[Place, Changed], count: int) -> Iterator[Changed]:
        return (changed for _, changed in zip(range(count), table.values(), strict=False))

    # -- what is to be done

    def look(self, image: ClusterImage, now_ms: int) -> Steps[None]:
        """Look at what has changed since the last look: everything, when brokers came or went. Interruptible."""
        seen = self._seen
        everywhere = image.brokers is not seen.brokers or image.broker_configs is not seen.broker_configs
        if image.topics is seen.topics and not everywhere:
            self._seen = image
            return
        for topic_id in seen.topics.keys() - image.topics.keys():
            for number in seen.topics[topic_id].partitions:
                self._forget(Place(topic_id, number))
        for topic_id, topic in image.topics.items():
            before = seen.topics.get(topic_id)
            if everywhere or before is None:
                yield from self._look_at(image, topic, EMPTY, now_ms)
            elif topic is not before:
                known = before.partitions if topic.configs == before.configs else EMPTY
                yield from self._look_at(image, topic, known, now_ms)
        self._seen = image  # not before: a look that was broken off is begun again

    def _look_at(
        self, image: ClusterImage, topic: Topic, known: Mapping[int, PartitionState], now_ms: int
    ) -> Steps[None]:
        """Look at the partitions of a topic that are not as they are known."""
        brokers, unclean = image.brokers, self._is_unclean(topic)
        for number, state in topic.partitions.items():
            if state is known.get(number):
                continue
            place = Place(topic.topic_id, number)
            after = settle(place, state, brokers, unclean=unclean)
            self._elections.pop(place, None)
            self._others.pop(place, None)
            if after is not state:
                changed = Changed(place=place, before=state, after=after)
                (self._elections if changed.is_election else self._others)[place] = changed
            if not prefers_another(place, after, brokers):
                self._imbalanced.pop(place, None)
            elif place not in self._imbalanced:
                self._imbalanced[place] = now_ms
            yield

    def _forget(self, place: Place) -> None:
        self._elections.pop(place, None)
        self._others.pop(place, None)
        self._imbalanced.pop(place, None)

    def _due(self, image: ClusterImage, now_ms: int, room: int) -> tuple[list[Changed], int | None]:
        """Partitions that go back to their preferred leaders by now, and when the next ones do."""
        settings = self._settings()
        due: list[Changed] = []
        if not settings.rebalances_leaders:
            return due, None
        for place, since_ms in self._imbalanced.items():
            if place in self._elections or place in self._others:
                continue
            at_ms = since_ms + settings.rebalances_after_ms
            if at_ms > now_ms or len(due) == room:
                return due, at_ms
            state = image.topics[place.topic_id].partitions[place.number]
            after = lead(state, state.replicas[0], image.brokers)
            due.append(Changed(place=place, before=state, after=after))
        return due, None

    @staticmethod
    def _leftovers(image: ClusterImage, room: int) -> list[Op]:
        """What nobody counts any more, or ever did."""
        for topic_id in image.waiting:
            ops = plan_leftovers(image, topic_id, room)
            if ops:
                return ops
        return []

"""The image: an immutable copy of all cluster metadata, rebuilt from the store's watch. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.partition_state import NO_EPOCH as NO_EPOCH
from penstock.cluster.partition_state import NO_LEADER as NO_LEADER
from penstock.cluster.partition_state import PartitionState as PartitionState
from penstock.cluster.partition_state import Place as Place
from penstock.cluster.partition_state import Placed as Placed
from penstock.cluster.queues import MoveTask, Queue
from penstock.cluster.views import View
from penstock.coordination.store import ABSENT, Change, Versioned
from penstock.foundation.ids import INTERNAL_TOPICS, uuid_text

NO_BROKER: Final = -1
AS_MANY_AS_THERE_ARE: Final = -1
EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker that is registered."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    http: str = ""
    host_id: str = ""
    """The machine. Several brokers on one are one failure domain."""
    epoch: int = NO_EPOCH
    """The number of this registration. No other one ever had it."""
    folder: str = ""
    """The id of the data folder: what a broker that has been restarted knows its old registration by."""
    leaving: bool = False
    """It is about to stop: leads nothing that another can lead, and joins no ISR."""
    lost: Mapping[Place, int] = field(default_factory=lambda: EMPTY)
    """Partitions of which it was the last in sync and has no data, and their leader epochs when it said so: it leads
    none of them unless somebody asks for that. Once somebody leads, the partition is lost no more."""

    def dump(self) -> bytes:
        """As the store holds it."""
        value = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "node_id"}
        value["lost"] = [[uuid_text(place.topic_id), place.number, epoch] for place, epoch in self.lost.items()]
        return keys.encode(value)

    @classmethod
    def read(cls, node_id: int, value: Mapping[str, Any]) -> "Broker":
        return cls(
            node_id=node_id,
            host=value["host"],
            port=value["port"],
            rack=value.get("rack"),
            http=value.get("http", ""),
            host_id=value.get("host_id", ""),
            epoch=value.get("epoch", NO_EPOCH),
            folder=value.get("folder", ""),
            leaving=value.get("leaving", False),
            lost={Place(keys.topic_id_of(text), number): epoch for text, number, epoch in value.get("lost", ())},
        )

    def has_lost(self, place: Place, state: "PartitionState") -> bool:
        """Whether it has nothing of a partition that it was the last in sync with."""
        return self.lost.get(place, NO_EPOCH) >= state.leader_epoch

    @property
    def failure_domain(self) -> tuple[str, str]:
        """Rack and machine. A broker that names no machine is one of its own."""
        return self.rack or "", self.host_id or f"broker-{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Who is the controller: which broker, in which registration, and the how-manieth there ever was."""

    node_id: int
    broker_epoch: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    topic_id: bytes
    name: str
    configs: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    partitions: Mapping[int, PartitionState] = field(default_factory=lambda: EMPTY)
    count: int = AS_MANY_AS_THERE_ARE
    """How many partitions it has by its own key, which is written last."""
    companion: bytes = b""
    """The id that its partitions' companion logs have, if they have some. Never given again."""
    is_queue: bool = False
    """Made for the queue of its name: it goes with it, and what is finished in it is reclaimed."""
    version: int = 0
    view: View | None = None
    """What makes it a view: then its partitions are those of the topic that it is a view of."""

    def dump(self) -> bytes:
        """Its own key, as the store holds it."""
        value: dict[str, Any] = {"name": self.name, "configs": dict(self.configs), "partitions": self.count}
        if self.companion:
            value["companion"] = uuid_text(self.companion)
        if self.is_queue:
            value["queue"] = True
        return keys.encode(value)

    @classmethod
    def read(cls, topic_id: bytes, value: Mapping[str, Any], version: int) -> "Topic":
        """Without its partitions, which have keys of their own."""
        return cls(
            topic_id=topic_id,
            name=value["name"],
            configs=value["configs"],
            count=value.get("partitions", AS_MANY_AS_THERE_ARE),
            companion=keys.topic_id_of(value["companion"]) if "companion" in value else b"",
            is_queue=value.get("queue", False),
            version=version,
        )

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What there is of a topic and is not shown: its own key, or partitions that it does not count (yet)."""

    topic: Topic | None = None
    partitions: Mapping[int, PartitionState] = field(default_factory=lambda: EMPTY)
    missing: frozenset[int] = frozenset()
    """Partitions that are shown as they were, for their keys are not there."""


NOTHING_WAITS: Final = Waiting()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The cluster at one time. A topic is in it when all of its partitions are."""

    revision: int = 0
    cluster_id: str = ""
    brokers: Mapping[int, Broker] = field(default_factory=lambda: EMPTY)
    folders: Mapping[int, str] = field(default_factory=lambda: EMPTY)
    drained: frozenset[int] = frozenset()
    controller: Controller | None = None
    controller_epoch: int = 0
    topics: Mapping[bytes, Topic] = field(default_factory=lambda: EMPTY)
    by_name: Mapping[str, Topic] = field(default_factory=lambda: EMPTY)
    waiting: Mapping[bytes, Waiting] = field(default_factory=lambda: EMPTY)
    """What was written in part, or is to be removed."""
    unfinished: Mapping[bytes, str] = field(default_factory=lambda: EMPTY)
    """The topics that somebody makes partitions of in several transactions, and who."""
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: EMPTY)
    """Dynamic broker settings, by node id as text; "" holds those of the whole cluster."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: EMPTY)
    """Settings that groups have of their own, by group id."""
    queues: Mapping[str, Queue] = field(default_factory=lambda: EMPTY)
    """By name. One whose topic is gone is none: see cluster/queueing.py."""
    queue_moves: Mapping[str, tuple[MoveTask, ...]] = field(default_factory=lambda: EMPTY)
    """By the queue that messages are moved from; the newest first."""
    views: Mapping[bytes, View] = field(default_factory=lambda: EMPTY)
    """By their ids. One whose topic is gone is none: see cluster/views.py."""
    versions: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """Versions of the keys that are not part of a topic."""
    shown: Mapping[bytes, Topic] = field(init=False)
    """Topics and views, as readers find them. Who writes, or looks after replicas, goes by `topics`."""
    shown_by_name: Mapping[str, Topic] = field(init=False)

    def __post_init__(self) -> None:
        shown, by_name = self.topics, self.by_name
        if self.views:
            found = [_shown_view(view, self.topics[view.topic_id]) for view in self._views_with_topics()]
            shown = {**shown, **{topic.topic_id: topic for topic in found}}
            by_name = {**by_name, **{topic.name: topic for topic in found}}
        object.__setattr__(self, "shown", shown)
        object.__setattr__(self, "shown_by_name", by_name)

    def _views_with_topics(self) -> Iterator[View]:
        return (view for view in self.views.values() if view.topic_id in self.topics)

    def listed_by_name(self) -> Mapping[str, Topic]:
        """What is told to those who ask for all topics: no views that were made for one reader."""
        if not self.views:
            return self.by_name
        return {
            name: topic
            for name, topic in self.shown_by_name.items()
            if topic.view is None or not topic.view.is_ad_hoc
        }

    def with_change(self, change: Change) -> "ClusterImage":
        """The image after a change. What it does not touch is shared with the old one: it costs by the change."""
        draft = _Draft(ClusterImage() if change.snapshot else self, self)
        for key, state in change.states.items():
            draft.apply(key, state)
        return draft.finish(change.revision)

    def state(self, place: Place) -> PartitionState | None:
        topic = self.topics.get(place.topic_id)
        return topic.partitions.get(place.number) if topic is not None else None

    def version(self, key: str) -> int:
        """The version of a key that is not part of a topic; ABSENT if it is not there."""
        return self.versions.get(key, ABSENT)

    @property
    def controller_id(self) -> int:
        return self.controller.node_id if self.controller is not None else NO_BROKER

    def placed(self, which: Callable[[PartitionState], object] | None = None) -> Iterator[Placed]:
        """Every partition that is shown, or every one of which this is true."""
        for topic_id, topic in self.topics.items():
            for number, state in topic.partitions.items():
                if which is None or which(state):
                    yield Place(topic_id, number), state

    def led_by(self, node_id: int) -> Iterator[Placed]:
        return self.placed(lambda state: state.leader == node_id)

    def held_by(self, node_id: int) -> Iterator[Placed]:
        """The partitions that a broker has a replica of."""
        return self.placed(lambda state: node_id in state.replicas)

    def offline(self) -> Iterator[Placed]:
        """The partitions that nobody leads."""
        return self.placed(lambda state: state.leader not in self.brokers)

    def under_replicated(self) -> Iterator[Placed]:
        return self.placed(lambda state: state.is_under_replicated)

    def eligible(self) -> dict[int, int]:
        """The brokers that may join an ISR, and the epochs they are registered with."""
        return {node: broker.epoch for node, broker in self.brokers.items() if not broker.leaving}

    def may_stop(self, node_id: int) -> bool:
        """Whether a broker neither leads what another could lead, nor is waited for by others that are in sync."""
        able = {node for node, broker in self.brokers.items() if not broker.leaving} - {node_id}
        counted = self.placed(lambda state: node_id in state.isr and not able.isdisjoint(state.isr))
        return next(counted, None) is None


class _Draft:
    """An image that is being made. Tables are copied when they are first changed; others see by that what did."""

    def __init__(self, base: ClusterImage, before: ClusterImage) -> None:
        self._base = base
        self._before = before
        """What was shown until now."""
        self._changed: dict[str, Any] = {}
        self._headers: dict[bytes, Topic | None] = {}
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}
        self._reshaped: set[bytes] = set()
        """Topics that may have come, gone, or have other partitions than before."""

    def _table(self, name: str) -> dict[Any, Any]:
        """A table of the image that may be changed."""
        found = self._changed.get(name)
        if found is None:
            found = self._changed[name] = dict(getattr(self._base, name))
        return found

    def _put(self, name: str, key: Any, value: Any) -> None:
        if value is not None:
            self._table(name)[key] = value
        elif key in self._changed.get(name, getattr(self._base, name)):
            del self._table(name)[key]

    def apply(self, key: str, state: Versioned | None) -> None:
        room, _, rest = key.partition("/")
        if room == keys.PARTITIONS:
            self._partition(rest, state)
        elif room == keys.TOPICS:
            self._topic(keys.topic_id_of(rest), state)
        else:
            self._put("versions", key, state.version if state else None)
            self._other(room, rest, keys.decode(state.value) if state else None)

    def _other(self, room: str, rest: str, value: Any) -> None:
        match room:
            case keys.CLUSTER:
                self._changed["cluster_id"] = value["cluster_id"] if value else ""
            case keys.BROKERS:
                self._put("brokers", int(rest), value and Broker.read(int(rest), value))
            case keys.FOLDERS:
                self._put("folders", int(rest), value)
            case keys.DRAINED:
                drained = self._changed.get("drained", self._base.drained)
                self._changed["drained"] = drained - {int(rest)} if value is None else drained | {int(rest)}
            case keys.UNFINISHED:
                self._put("unfinished", keys.topic_id_of(rest), value)
            case keys.BROKER_CONFIGS:
                self._put("broker_configs", rest, value)
            case keys.GROUP_CONFIGS:
                self._put("group_configs", keys.group_id_of(rest), value)
            case keys.QUEUES:
                self._put("queues", rest, value and Queue.read(rest, value))
            case keys.VIEWS:
                view_id = keys.topic_id_of(rest)
                self._put("views", view_id, value and View.read(view_id, value))
            case keys.QUEUE_MOVES:
                self._put("queue_moves", rest, value and tuple(map(MoveTask.read, value)))
            case keys.CONTROLLER:
                self._changed["controller"] = value and Controller(**value)
            case keys.CONTROLLER_EPOCH:
                self._changed["controller_epoch"] = value or 0

    def _topic(self, topic_id: bytes, state: Versioned | None) -> None:
        known = self._header(topic_id)
        found = Topic.read(topic_id, keys.decode(state.value), state.version) if state else None
        if found is None or known is None or (found.count, found.name) != (known.count, known.name):
            self._reshaped.add(topic_id)
        if topic_id in self._base.waiting:
            self._reshaped.add(topic_id)
        self._headers[topic_id] = found

    def _header(self, topic_id: bytes) -> Topic | None:
        if topic_id in self._headers:
            return self._headers[topic_id]
        waiting = self._base.waiting.get(topic_id)
        return self._base.topics.get(topic_id) or (waiting.topic if waiting else None)

    def _partition(self, rest: str, state: Versioned | None) -> None:
        name, _, text = rest.partition("/")
        topic_id, number = keys.topic_id_of(name), int(text)
        table = self._partitions.get(topic_id)
        if table is None:
            table = self._partitions[topic_id] = self._partitions_before(topic_id)
        if state is None or number not in table:
            self._reshaped.add(topic_id)
        if state is None:
            table.pop(number, None)
        else:
            table[number] = PartitionState.read(keys.decode(state.value), state.version)

    def _partitions_before(self, topic_id: bytes) -> dict[int, PartitionState]:
        shown, waiting = self._base.topics.get(topic_id), self._base.waiting.get(topic_id)
        table = dict(shown.partitions) if shown else {}
        if waiting is not None:
            for number in waiting.missing:
                del table[number]
            table |= waiting.partitions
            self._reshaped.add(topic_id)
        return table

    def finish(self, revision: int) -> ClusterImage:
        for topic_id in dict.fromkeys((*self._headers, *self._partitions)):
            if topic_id in self._reshaped:
                self._reshape(topic_id)
            else:
                self._refill(topic_id)
        return replace(self._base, revision=revision, **self._changed)

    def _refill(self, topic_id: bytes) -> None:
        """The same partitions, in other states, or other settings."""
        shown, partitions = self._base.topics[topic_id], self._partitions.get(topic_id)
        header = self._header(topic_id) or shown
        self._show(replace(header, partitions=shown.partitions if partitions is None else partitions))

    def _reshape(self, topic_id: bytes) -> None:
        """What is shown of a topic, and what waits."""
        header, before = self._header(topic_id), self._before.topics.get(topic_id)
        found = self._partitions.get(topic_id)
        table = self._partitions_before(topic_id) if found is None else found
        shown = _shown(header, table, before.partitions if before else EMPTY)
        rest = {number: table[number] for number in sorted(table.keys() - shown.keys())}
        if topic_id in self._base.topics:
            self._hide(self._base.topics[topic_id])
        if header is not None and shown:
            self._show(replace(header, partitions=shown))
            header = None
        waits = Waiting(
            topic=header and replace(header, partitions=EMPTY),
            partitions=rest,
            missing=frozenset(shown.keys() - table.keys()),
        )
        self._put("waiting", topic_id, waits if waits != NOTHING_WAITS else None)

    def _show(self, topic: Topic) -> None:
        self._put("topics", topic.topic_id, topic)
        self._put("by_name", topic.name, topic)

    def _hide(self, topic: Topic) -> None:
        self._put("topics", topic.topic_id, None)
        named = self._changed.get("by_name", self._base.by_name).get(topic.name)
        if named is not None and named.topic_id == topic.topic_id:
            others = [other for other in self._table("topics").values() if other.name == topic.name]
            self._put("by_name", topic.name, others[-1] if others else None)


def _shown_view(view: View, source: Topic) -> Topic:
    """A view in the form of a topic."""
    return Topic(
        topic_id=view.view_id,
        name=view.name,
        configs=view.configs(),
        partitions=source.partitions,
        count=source.count,
        view=view,
    )


def _shown(
    topic: Topic | None, table: Mapping[int, PartitionState], before: Mapping[int, PartitionState]
) -> dict[int, PartitionState]:
    """The partitions that are shown: all, once they are there, and until then those that were.

    A topic is gone when its own key is: what else is missing is on its way.
    """
    if topic is None:
        return {}
    count = len(table) if topic.count == AS_MANY_AS_THERE_ARE else topic.count
    if all(number in table for number in range(count)):
        return {number: table[number] for number in range(count)}
    return {number: table.get(number, before[number]) for number in range(min(count, len(before)))}

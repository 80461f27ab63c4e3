"""The image: an immutable copy of all cluster metadata, rebuilt from the store's watch. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from penstock.cluster import keys
from penstock.coordination.store import Change, Versioned

NO_LEADER: Final = -1
_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None
    http: str = ""
    incarnation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who holds a partition and who leads it; changed by compare-and-set on its own key."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    reserved_from: int = 0
    reserved_to: int = 0
    """The offsets that a memory partition may give. When it restarts, empty, it begins above all it ever gave."""
    version: int = 0
    """The store's version of this state: the condition of the next change."""

    def dump(self) -> bytes:
        """As the store holds it."""
        value = asdict(self)
        del value["version"]
        return keys.encode(value)

    @classmethod
    def read(cls, value: Mapping[str, Any], version: int) -> "PartitionState":
        lists = {name: tuple(value[name]) for name in ("replicas", "isr", "adding", "removing")}
        return cls(
            leader=value["leader"],
            leader_epoch=value["leader_epoch"],
            reserved_from=value["reserved_from"],
            reserved_to=value["reserved_to"],
            version=version,
            **lists,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    topic_id: bytes
    name: str
    configs: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    partitions: Mapping[int, PartitionState] = field(default_factory=lambda: _EMPTY)
    version: int = 0

    @property
    def is_internal(self) -> bool:
        return self.name in ("__consumer_offsets", "__transaction_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    revision: int = 0
    cluster_id: str = ""
    brokers: Mapping[int, Broker] = field(default_factory=lambda: _EMPTY)
    topics: Mapping[bytes, Topic] = field(default_factory=lambda: _EMPTY)
    by_name: Mapping[str, Topic] = field(default_factory=lambda: _EMPTY)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _EMPTY)
    """Dynamic broker settings, by node id as text; "" holds those of the whole cluster."""
    versions: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    """Versions of the keys that are not part of a topic."""

    def with_change(self, change: Change) -> "ClusterImage":
        """The image after a change. Topics that it does not touch are shared with the old one."""
        base = ClusterImage() if change.snapshot else self
        draft = _Draft(base)
        for key, state in change.states.items():
            draft.apply(key, state)
        return draft.finish(change.revision)


class _Draft:
    """A copy of an image that may be changed, one level deep at a time."""

    def __init__(self, base: ClusterImage) -> None:
        self._base = base
        self._cluster_id = base.cluster_id
        self._brokers = dict(base.brokers)
        self._topics = dict(base.topics)
        self._broker_configs = base.broker_configs  # the same one, unless it changes: others see by that
        self._versions = dict(base.versions)
        self._partitions: dict[bytes, dict[int, PartitionState]] = {}

    def apply(self, key: str, state: Versioned | None) -> None:
        room, _, rest = key.partition("/")
        value = keys.decode(state.value) if state else None
        if room == keys.TOPICS:
            self._topic(keys.topic_id_of(rest), value, state)
        elif room == keys.PARTITIONS:
            self._partition(rest, value, state)
        else:
            if state is None:
                self._versions.pop(key, None)
            else:
                self._versions[key] = state.version
            if room == keys.CLUSTER and value:
                self._cluster_id = value["cluster_id"]
            elif room == keys.BROKERS:
                self._put(self._brokers, int(rest), value and Broker(node_id=int(rest), **value))
            elif room == keys.BROKER_CONFIGS:
                changed = dict(self._broker_configs)
                self._put(changed, rest, value)
                self._broker_configs = changed

    @staticmethod
    def _put(table: dict[Any, Any], key: Any, value: Any) -> None:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def _topic(self, topic_id: bytes, value: Any, state: Versioned | None) -> None:
        if value is None or state is None:
            self._topics.pop(topic_id, None)
            return
        known = self._topics.get(topic_id)
        self._topics[topic_id] = Topic(
            topic_id=topic_id,
            name=value["name"],
            configs=value["configs"],
            partitions=known.partitions if known else _EMPTY,
            version=state.version,
        )

    def _partition(self, rest: str, value: Any, state: Versioned | None) -> None:
        name, _, number = rest.partition("/")
        topic_id = keys.topic_id_of(name)
        known = self._topics.get(topic_id)
        table = self._partitions.setdefault(topic_id, dict(known.partitions) if known else {})
        self._put(table, int(number), PartitionState.read(value, state.version) if state else None)

    def finish(self, revision: int) -> ClusterImage:
        for topic_id, table in self._partitions.items():
            if topic_id in self._topics:
                self._topics[topic_id] = replace(self._topics[topic_id], partitions=dict(sorted(table.items())))
        return ClusterImage(
            revision=revision,
            cluster_id=self._cluster_id,
            brokers=self._brokers,
            topics=self._topics,
            by_name={topic.name: topic for topic in self._topics.values()},
            broker_configs=self._broker_configs,
            versions=self._versions,
        )

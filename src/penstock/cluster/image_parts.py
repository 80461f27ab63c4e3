"""Parts of the metadata image: Broker (registration), Controller, Topic. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.partition_state import NO_EPOCH, PartitionState
from penstock.cluster.views import View
from penstock.foundation.ids import INTERNAL_TOPICS, TopicIdPartition, uuid_text

NO_BROKER: Final = -1
COUNT_UNKNOWN: Final = -1
EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    http: str = ""
    host_id: str = ""
    """The machine. Several brokers on one machine are one failure domain."""
    epoch: int = NO_EPOCH
    """The broker epoch: unique for each registration."""
    folder: str = ""
    """The id of the data folder, by which a restarted broker recognises its old registration."""
    leaving: bool = False
    """It is shutting down: leads no partition that another can lead, and joins no ISR."""
    lost: Mapping[TopicIdPartition, int] = field(default_factory=lambda: EMPTY)
    """Partitions of which it was the last in-sync replica and has lost the data, with their leader epochs then: it
    leads none of them without an unclean election. The entry is obsolete once the partition has a leader."""

    def dump(self) -> bytes:
        """Returns the value for the store."""
        value = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "node_id"}
        value["lost"] = [[uuid_text(tp.topic_id), tp.partition, epoch] for tp, epoch in self.lost.items()]
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
            lost={
                TopicIdPartition(keys.topic_id_of(text), number): epoch
                for text, number, epoch in value.get("lost", ())
            },
        )

    def has_lost(self, tp: TopicIdPartition, state: PartitionState) -> bool:
        """Whether it has lost the data of a partition of which it was the last in-sync replica."""
        return self.lost.get(tp, NO_EPOCH) >= state.leader_epoch

    @property
    def failure_domain(self) -> tuple[str, str]:
        """Rack and machine. A broker without a host id is its own domain."""
        return self.rack or "", self.host_id or f"broker-{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The current controller: broker, broker epoch and controller epoch."""

    node_id: int
    broker_epoch: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    topic_id: bytes
    name: str
    configs: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    partitions: Mapping[int, PartitionState] = field(default_factory=lambda: EMPTY)
    count: int = COUNT_UNKNOWN
    """Number of partitions according to its own key, which is written last."""
    companion: bytes = b""
    """The id of its companion logs, or empty. Never reused."""
    is_queue: bool = False
    """Whether it was created for the queue of its name: deleted with it, and finished messages are reclaimed."""
    version: int = 0
    view: View | None = None
    """Set for a view: then its partitions are those of its source topic."""

    def dump(self) -> bytes:
        """Returns the value of the topic's key for the store."""
        value: dict[str, Any] = {"name": self.name, "configs": dict(self.configs), "partitions": self.count}
        if self.companion:
            value["companion"] = uuid_text(self.companion)
        if self.is_queue:
            value["queue"] = True
        return keys.encode(value)

    @classmethod
    def read(cls, topic_id: bytes, value: Mapping[str, Any], version: int) -> "Topic":
        """Reads a topic without its partitions, which have separate keys."""
        return cls(
            topic_id=topic_id,
            name=value["name"],
            configs=value["configs"],
            count=value.get("partitions", COUNT_UNKNOWN),
            companion=keys.topic_id_of(value["companion"]) if "companion" in value else b"",
            is_queue=value.get("queue", False),
            version=version,
        )

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteTopic:
    """The parts of a topic that are not shown: its own key, or partitions beyond its count."""

    topic: Topic | None = None
    partitions: Mapping[int, PartitionState] = field(default_factory=lambda: EMPTY)
    missing: frozenset[int] = frozenset()
    """Partitions shown in their previous state, because their keys are missing."""


NOTHING_INCOMPLETE: Final = IncompleteTopic()

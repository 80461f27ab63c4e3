"""What the image is made of: brokers, the controller, topics. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.partition_state import NO_EPOCH, PartitionState, Place
from penstock.cluster.views import View
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
    none of them without an unclean election. The entry is obsolete once the partition has a leader."""

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

    def has_lost(self, place: Place, state: PartitionState) -> bool:
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

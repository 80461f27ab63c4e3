"""Parts of the metadata image: Broker (registration), Controller, Topic. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from penstock.cluster import keys
from penstock.cluster.partition_state import NO_EPOCH, PartitionState
from penstock.cluster.views import View
from penstock.foundation.address import Address
from penstock.foundation.ids import INTERNAL_TOPICS, TopicIdPartition, uuid_text
from penstock.log.settings import is_written_by_brokers

NO_BROKER: Final = -1
COUNT_UNKNOWN: Final = -1
EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker."""

    node_id: int
    host: str
    port: int
    """Address of the inter-broker listener, for brokers of a version that knows only one listener."""
    endpoints: Mapping[str, Address] = field(default_factory=lambda: EMPTY)
    """Advertised addresses by listener name; empty if such an older version wrote the registration."""
    rack: str | None = None
    http: str = ""
    host_id: str = ""
    """Id of the machine that the broker runs on. Brokers on the same machine are one failure domain."""
    epoch: int = NO_EPOCH
    """The broker epoch, which is unique for each registration."""
    folder: str = ""
    """The id of the broker's data folder, by which it recognises its own registration after a restart."""
    leaving: bool = False
    """Whether the broker is shutting down: it leads no partition that another broker can lead, and joins no ISR."""
    lost: Mapping[TopicIdPartition, int] = field(default_factory=lambda: EMPTY)
    """Partitions whose data the broker lost as the last in-sync replica, with their leader epochs at that time.
    The broker can lead them only after an unclean election. An entry is obsolete once the partition has a leader."""

    def dump(self) -> bytes:
        """Returns the registration as a value for the store."""
        value = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "node_id"}
        value["endpoints"] = {name: [at.host, at.port] for name, at in self.endpoints.items()}
        value["lost"] = [[uuid_text(tp.topic_id), tp.partition, epoch] for tp, epoch in self.lost.items()]
        return keys.encode(value)

    @classmethod
    def read(cls, node_id: int, value: Mapping[str, Any]) -> "Broker":
        return cls(
            node_id=node_id,
            host=value["host"],
            port=value["port"],
            endpoints={
                name: Address(host=host, port=port) for name, (host, port) in value.get("endpoints", {}).items()
            },
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

    def endpoint(self, listener: str) -> Address | None:
        """Returns the advertised address of a listener; None if the broker does not advertise that listener."""
        return self.endpoints.get(listener) if self.endpoints else Address(host=self.host, port=self.port)

    def has_lost(self, tp: TopicIdPartition, state: PartitionState) -> bool:
        """Whether the broker has lost the data of a partition of which it was the last in-sync replica."""
        return self.lost.get(tp, NO_EPOCH) >= state.leader_epoch

    @property
    def failure_domain(self) -> tuple[str, str]:
        """Returns rack and machine of the broker. A broker without a host id counts as a machine of its own."""
        return self.rack or "", self.host_id or f"broker-{self.node_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The current controller: its node id, broker epoch and controller epoch."""

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
    """Number of partitions as stored in the topic's own key, which is written after its partitions."""
    companion: bytes = b""
    """Id of the topic's companion logs, never reused; empty if there are none. Each partition has one beside its
    own log, with the delivery state of queues and share groups, or with delayed messages."""
    is_queue: bool = False
    """Whether the topic was created for the queue of the same name: its log reclaims space of finished messages."""
    version: int = 0
    view: View | None = None
    """The view (filtered topic) that this Topic stands for, with its source's `partitions`. None for a real topic."""

    def dump(self) -> bytes:
        """Returns the value of the topic's key in the store; its partitions have separate keys."""
        value: dict[str, Any] = {"name": self.name, "configs": dict(self.configs), "partitions": self.count}
        if self.companion:
            value["companion"] = uuid_text(self.companion)
        if self.is_queue:
            value["queue"] = True
        return keys.encode(value)

    @classmethod
    def read(cls, topic_id: bytes, value: Mapping[str, Any], version: int) -> "Topic":
        """Parses the value of a topic's own key. Its partitions have separate keys."""
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
        """Whether only brokers write to the topic: those of coordinators, and that of the schema registry."""
        return self.name in INTERNAL_TOPICS or is_written_by_brokers(self.configs)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteTopic:
    """Stored keys of a topic that is only partly created, grown or deleted, which `ClusterImage.topics` leaves
    out: its own key (`topic`), and partitions that are not yet, or no longer, part of the topic (`partitions`)."""

    topic: Topic | None = None
    partitions: Mapping[int, PartitionState] = field(default_factory=lambda: EMPTY)
    missing: frozenset[int] = frozenset()
    """Partitions whose keys are missing in the store: the image shows them in their previous state."""


NOTHING_INCOMPLETE: Final = IncompleteTopic()

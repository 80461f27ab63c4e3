"""PartitionState: replicas, leader, leader epoch and ISR of a partition, as in the store (LeaderAndIsr). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from penstock.cluster import keys
from penstock.foundation.ids import TopicIdPartition

NO_LEADER: Final = -1
NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Replicas, leader and ISR of a partition; changed by compare-and-set on its store key."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader_broker_epoch: int = NO_EPOCH
    """The leader's broker epoch when it was elected. A leader that restarts no longer leads in this leader epoch."""
    reserved_from: int = 0
    reserved_to: int = 0
    """Exclusive end of the offsets that the leader of a partition kept only in memory may assign; 0 for others."""
    version: int = 0
    """The store version of this state; the next write of the state requires this version."""

    def dump(self) -> bytes:
        """Returns this state as a value for the store."""
        return keys.encode({name: getattr(self, name) for name in _STORED})

    @classmethod
    def read(cls, value: Mapping[str, Any], version: int) -> "PartitionState":
        return cls(
            replicas=tuple(value["replicas"]),
            leader=value["leader"],
            leader_epoch=value["leader_epoch"],
            isr=tuple(value["isr"]),
            adding=tuple(value["adding"]),
            removing=tuple(value["removing"]),
            leader_broker_epoch=value.get("leader_broker_epoch", NO_EPOCH),
            reserved_from=value["reserved_from"],
            reserved_to=value["reserved_to"],
            version=version,
        )

    def is_led_by(self, node_id: int, broker_epoch: int) -> bool:
        """Whether a broker was elected as leader in its current registration; it leads as soon as its log is open."""
        return self.leader == node_id and self.leader_broker_epoch == broker_epoch

    @property
    def in_memory(self) -> bool:
        return self.reserved_to > 0

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync; replicas that a reassignment is adding do not count."""
        return len(self.isr) < len(self.replicas) and not {*self.replicas} <= {*self.isr, *self.adding}


PartitionEntry = tuple[TopicIdPartition, PartitionState]
_STORED: Final = tuple(entry.name for entry in fields(PartitionState) if entry.name != "version")

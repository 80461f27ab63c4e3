"""ISR changes of several partitions, written to the store in one transaction (AlterPartition in Kafka). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Check, Conflict, Op, Put
from penstock.replication.leadership import Leadership, ProposedIsr
from penstock.replication.partition import Partition


class IsrChange(NamedTuple):
    """An ISR change that the leader of a partition proposes."""

    partition: Partition
    lead: Leadership
    proposed: ProposedIsr

    @property
    def key(self) -> str:
        return keys.partition(*self.partition.tp)

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads in the leader epoch in which the change was proposed."""
        return self.partition.leadership is self.lead


def due_change(partition: Partition, now_ms: int, eligible: Mapping[int, int]) -> IsrChange | None:
    """Returns the ISR change that a partition led by this broker needs, or None. `eligible`: epochs, by node id,
    of the brokers that may be in an ISR."""
    lead = partition.leadership
    proposed = lead.propose_isr(now_ms, eligible) if lead is not None else None
    return IsrChange(partition, lead, proposed) if lead is not None and proposed is not None else None


def begin(changes: Sequence[IsrChange], image: ClusterImage) -> list[Op]:
    """Returns the store operations that write the ISR changes, and marks the changes as proposed. Call `end` when the
    write has succeeded or failed."""
    ops: list[Op] = []
    joining: set[int] = set()
    for change in changes:
        ops.append(
            Put(change.key, replace(change.lead.state, isr=change.proposed.isr).dump(), change.proposed.version)
        )
        joining.update(change.proposed.joining.values())
        change.lead.isr_proposed(change.proposed)
    incarnations = [keys.incarnation(epoch) for epoch in sorted(joining)]
    return ops + [Check(name, image.version(name)) for name in incarnations]


def end(changes: Sequence[IsrChange], conflict: Conflict | None = None) -> None:
    """Records that the write of the ISR changes has ended; a new ISR takes effect when the metadata image shows
    it. `conflict`: why the store rejected the write; None if it did not."""
    for change in changes:
        is_outdated = conflict is not None and conflict.key == change.key
        change.lead.isr_decided(change.proposed, is_outdated=is_outdated)

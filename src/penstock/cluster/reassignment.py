"""Partition reassignment: plans, cancels and lists moves of replicas (KIP-455). Pure.

New replicas are added beside the old replicas. When all target replicas are in sync,
`elections.complete_reassignment` drops the others. The whole state of a reassignment is in the partition state.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.cluster import keys
from penstock.cluster.elections import elect_leader, find_state, first_candidate, with_unclean_leader
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.coordination.store import Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidReplicaAssignment, InvalidReplicationFactor, PenstockError
from penstock.foundation.ids import TopicIdPartition


class NoReassignmentInProgress(PenstockError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A reassignment in progress, for ListPartitionReassignments."""

    tp: TopicIdPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def target_replicas(state: PartitionState) -> tuple[int, ...]:
    """Returns the replicas of a partition; during a reassignment, the replicas it will have afterwards."""
    return tuple(node for node in state.replicas if node not in state.removing)


def check_replicas(image: ClusterImage, replicas: Sequence[int]) -> None:
    """Raises InvalidReplicaAssignment if the list of replicas is empty, has duplicates or names an unknown broker."""
    if not replicas:
        raise InvalidReplicaAssignment("a partition needs at least one replica, the assignment is empty")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"the assignment {list(replicas)} names a broker twice")
    unknown = [node for node in replicas if node not in image.brokers]
    if unknown:
        raise InvalidReplicaAssignment(f"the assignment {list(replicas)} names unknown or offline brokers: {unknown}")


def plan_reassign(
    image: ClusterImage,
    tp: TopicIdPartition,
    replicas: Sequence[int],
    *,
    unclean: bool = False,
    may_resize: bool = True,
) -> list[Op]:
    """Returns the write that starts a reassignment to these replicas, and also completes it if all are in sync.

    `may_resize`: whether the number of replicas may change (KIP-860). `unclean`: whether unclean election is allowed.
    """
    state = find_state(image, tp)
    check_replicas(image, replicas)
    if not may_resize and len(replicas) != len(target_replicas(state)):
        raise InvalidReplicationFactor(
            f"the partition has {len(target_replicas(state))} replicas, but the assignment has {len(replicas)}"
        )
    wanted = reassigned(state, tuple(replicas))
    elected = elect_leader(tp, wanted, image.brokers, unclean=unclean)
    return _plan_write(tp, state, _fence_dropped(state, elected))


def reassigned(state: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    """Returns the state with a reassignment to these replicas. Replicas that a previous reassignment was adding
    are dropped, unless they are in the new target or are the only replicas in sync."""
    origin = set(state.replicas).difference(state.adding)
    if not (origin | set(replicas)).intersection(state.isr):
        origin.update(state.isr)
    removing = tuple(node for node in state.replicas if node in origin and node not in replicas)
    replicas_meanwhile = replicas + removing
    return replace(
        state,
        replicas=replicas_meanwhile,
        isr=tuple(node for node in state.isr if node in replicas_meanwhile),
        adding=tuple(node for node in replicas if node not in origin),
        removing=removing,
    )


def _fence_dropped(before: PartitionState, after: PartitionState) -> PartitionState:
    """Returns `after` with a higher leader epoch if replicas were dropped, which fences them; else `after` itself."""
    if set(before.replicas) <= set(after.replicas) or after.leader_epoch > before.leader_epoch:
        return after
    return replace(after, leader_epoch=before.leader_epoch + 1)


def plan_cancel(image: ClusterImage, tp: TopicIdPartition, *, unclean: bool = False) -> list[Op]:
    """Returns the write that cancels a reassignment. Raises if no original replica is in sync, unless `unclean`."""
    state = find_state(image, tp)
    if not state.is_reassigned:
        raise NoReassignmentInProgress("no reassignment of this partition is in progress")
    replicas = tuple(node for node in state.replicas if node not in state.adding)
    isr = tuple(node for node in state.isr if node not in state.adding)
    if not replicas or not (isr or unclean):
        raise InvalidReplicaAssignment(
            "only replicas being added are in sync: without them the partition would lose messages; "
            "wait until the reassignment is complete, or set unclean.leader.election.enable for the topic"
        )
    wanted = replace(state, replicas=replicas, adding=(), removing=())
    if not isr:
        first = first_candidate(tp, wanted, image.brokers)
        if first is None:
            raise InvalidReplicaAssignment(
                f"none of the replicas {list(replicas)} can lead; start one of their brokers"
            )
        return _plan_write(tp, state, with_unclean_leader(wanted, first, image.brokers))
    wanted = replace(wanted, isr=isr)
    elected = elect_leader(tp, wanted, image.brokers, unclean=unclean)
    return _plan_write(tp, state, _fence_dropped(state, elected))


def _plan_write(tp: TopicIdPartition, before: PartitionState, after: PartitionState) -> list[Op]:
    if after == before:
        return []
    return [Put(keys.partition(tp.topic_id, tp.partition), after.dump(), before.version)]


def find_reassignments(image: ClusterImage, tps: Iterable[TopicIdPartition] | None = None) -> Iterator[Reassignment]:
    """Yields the reassignments in progress of these partitions, or of all partitions if `tps` is None."""
    if tps is None:
        found = image.find_partitions(lambda state: state.is_reassigned)
    else:
        found = ((tp, state) for tp in tps if (state := image.state(tp)) is not None)
    for tp, state in found:
        if state.is_reassigned:
            yield Reassignment(tp=tp, replicas=state.replicas, adding=state.adding, removing=state.removing)

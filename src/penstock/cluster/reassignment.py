"""Moving replicas: what somebody asks for, and what is under way (KIP-455). Pure.

The new replicas are added beside the old ones. When all that shall remain are in sync, `elections.complete` drops the
others. Nothing else remembers a reassignment: it is all in the partition's state.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.cluster import keys
from penstock.cluster.elections import known_state, lead_uncleanly, settle
from penstock.cluster.image import ClusterImage, PartitionState, Place
from penstock.coordination.store import Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidReplicaAssignment, InvalidReplicationFactor, PenstockError


class NoReassignmentInProgress(PenstockError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    """A reassignment that is under way, as ListPartitionReassignments tells it."""

    place: Place
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def target_of(state: PartitionState) -> tuple[int, ...]:
    """The replicas that a partition has, or will have when its reassignment is done."""
    return tuple(node for node in state.replicas if node not in state.removing)


def check_replicas(image: ClusterImage, replicas: Sequence[int]) -> None:
    """Raises what Kafka answers to replicas that cannot be."""
    if not replicas:
        raise InvalidReplicaAssignment("a partition needs at least one replica, the assignment is empty")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"the assignment {list(replicas)} names a broker twice")
    unknown = [node for node in replicas if node not in image.brokers]
    if unknown:
        raise InvalidReplicaAssignment(f"the assignment {list(replicas)} names brokers that are not there: {unknown}")


def plan_reassign(
    image: ClusterImage, place: Place, replicas: Sequence[int], *, unclean: bool = False, may_resize: bool = True
) -> list[Op]:
    """The write that moves a partition to these replicas, or begins to.

    `may_resize`: whether the number of replicas may become another (KIP-860).
    """
    state = known_state(image, place)
    check_replicas(image, replicas)
    if not may_resize and len(replicas) != len(target_of(state)):
        raise InvalidReplicationFactor(
            f"the partition has {len(target_of(state))} replicas, the assignment {len(replicas)}"
        )
    wanted = reassigned(state, tuple(replicas))
    settled = settle(place, wanted, image.brokers, unclean=unclean)
    return _written(place, state, _unheard(state, settled))


def reassigned(state: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    """On its way to these replicas. What a reassignment before this one was adding goes at once, unless it is wanted,
    or nobody else is in sync."""
    origin = set(state.replicas).difference(state.adding)
    if not (origin | set(replicas)).intersection(state.isr):
        origin.update(state.isr)
    removing = tuple(node for node in state.replicas if node in origin and node not in replicas)
    everyone = replicas + removing
    return replace(
        state,
        replicas=everyone,
        isr=tuple(node for node in state.isr if node in everyone),
        adding=tuple(node for node in replicas if node not in origin),
        removing=removing,
    )


def _unheard(before: PartitionState, after: PartitionState) -> PartitionState:
    """Replicas that are dropped must not be heard any more: a new epoch, if there is none yet."""
    if set(before.replicas) <= set(after.replicas) or after.leader_epoch > before.leader_epoch:
        return after
    return replace(after, leader_epoch=before.leader_epoch + 1)


def plan_cancel(image: ClusterImage, place: Place, *, unclean: bool = False) -> list[Op]:
    """The write that takes a reassignment back: the replicas that were there before it remain."""
    state = known_state(image, place)
    if not state.is_reassigned:
        raise NoReassignmentInProgress("no reassignment of this partition is under way")
    replicas = tuple(node for node in state.replicas if node not in state.adding)
    isr = tuple(node for node in state.isr if node not in state.adding)
    if not replicas or not (isr or unclean):
        raise InvalidReplicaAssignment(
            "only replicas that were being added are in sync: without them the partition would lose messages; "
            "wait until the reassignment is done, or allow unclean.leader.election.enable for the topic"
        )
    wanted = replace(state, replicas=replicas, adding=(), removing=())
    if not isr:
        first = next((node for node in replicas if node in image.brokers), None)
        if first is None:
            raise InvalidReplicaAssignment(f"none of the replicas {list(replicas)} is there to lead")
        return _written(place, state, lead_uncleanly(wanted, first, image.brokers))
    wanted = replace(wanted, isr=isr)
    settled = settle(place, wanted, image.brokers, unclean=unclean)
    return _written(place, state, _unheard(state, settled))


def _written(place: Place, before: PartitionState, after: PartitionState) -> list[Op]:
    if after == before:
        return []
    return [Put(keys.partition(place.topic_id, place.number), after.dump(), before.version)]


def ongoing(image: ClusterImage, places: Iterable[Place] | None = None) -> Iterator[Ongoing]:
    """The reassignments that are under way, all of them or those of these partitions."""
    if places is None:
        found = image.placed(lambda state: state.is_reassigned)
    else:
        found = ((place, state) for place in places if (state := image.state(place)) is not None)
    for place, state in found:
        if state.is_reassigned:
            yield Ongoing(place=place, replicas=state.replicas, adding=state.adding, removing=state.removing)

"""Leader election and ISR rules of a partition, given the registered brokers (Kafka's LeaderAndIsr). Pure.

`elect_leader` is the one rule of the controller: it computes the desired state of a partition from its current state
and the registered brokers. It does not depend on history, and returns the same result until something changes.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Final

from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, NO_LEADER, Broker, ClusterImage, PartitionState
from penstock.coordination.store import Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, UnknownTopicOrPartition
from penstock.foundation.ids import TopicIdPartition, uuid_text

RESERVED_OFFSETS: Final = 1 << 24
"""Number of offsets that a partition kept only in memory reserves in the store at a time: it never reuses them."""

Brokers = Mapping[int, Broker]


class ElectionNotNeeded(PenstockError):
    code = ErrorCode.ELECTION_NOT_NEEDED


class PreferredLeaderNotAvailable(PenstockError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(PenstockError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class Election(IntEnum):
    """The election type of an ElectLeaders request (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leader(tp: TopicIdPartition, state: PartitionState, brokers: Brokers, *, unclean: bool) -> PartitionState:
    """Returns the state that the partition must have with these brokers: leader, ISR, replicas. Returns `state`
    itself if nothing changes. `unclean`: whether replicas outside the ISR may be elected."""
    if _is_stable(state, brokers):
        return state
    isr = _live_isr(tp, state, brokers)
    elected = complete_reassignment(tp, replace(state, isr=isr) if isr != state.isr else state, brokers)
    if _can_stay_leader(tp, elected, brokers):
        if len(elected.replicas) < len(state.replicas):  # fences the removed ones
            return with_leader(elected, elected.leader, brokers)
        return elected
    for node in elected.replicas:
        if node in elected.isr and can_lead(node, tp, elected, brokers):
            return with_leader(elected, node, brokers)
    if unclean and (found := first_candidate(tp, elected, brokers)) is not None:
        return with_unclean_leader(elected, found, brokers)
    if elected.leader == NO_LEADER:
        return elected
    return replace(elected, leader=NO_LEADER, leader_epoch=elected.leader_epoch + 1, leader_broker_epoch=NO_EPOCH)


def _is_stable(state: PartitionState, brokers: Brokers) -> bool:
    """Fast path of `elect_leader`: returns True if the state obviously needs no change, which is nearly always so."""
    leader = brokers.get(state.leader)
    if leader is None or leader.epoch != state.leader_broker_epoch or state.adding or state.removing:
        return False
    for node in state.isr:
        member = brokers.get(node)
        if member is None or member.leaving or member.lost:
            return False
    return state.leader in state.isr


def can_lead(node: int, tp: TopicIdPartition, state: PartitionState, brokers: Brokers) -> bool:
    """Whether broker `node` may lead: online, not shutting down, data not lost. Does not check ISR membership."""
    broker = brokers.get(node)
    return broker is not None and not broker.leaving and not broker.has_lost(tp, state)


def _live_isr(tp: TopicIdPartition, state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    """Returns the new ISR: the members that may lead (see `can_lead`); if there are none, the members that are
    shutting down. If all are offline or have lost their data, the ISR stays: it must not become empty."""
    candidates = tuple(node for node in state.isr if can_lead(node, tp, state, brokers))
    if candidates:
        return candidates
    online = tuple(node for node in state.isr if node in brokers and not brokers[node].has_lost(tp, state))
    return online or state.isr


def complete_reassignment(tp: TopicIdPartition, state: PartitionState, brokers: Brokers) -> PartitionState:
    """Returns the state after the reassignment if all target replicas are in sync (KIP-455), else `state` itself."""
    if not state.is_reassigned:
        return state
    replicas = tuple(node for node in state.replicas if node not in state.removing)
    isr = tuple(node for node in state.isr if node not in state.removing)
    if (
        not replicas
        or not set(replicas) <= set(isr)
        or not any(can_lead(node, tp, state, brokers) for node in replicas)
    ):
        return state
    return replace(state, replicas=replicas, isr=isr, adding=(), removing=())


def _can_stay_leader(tp: TopicIdPartition, state: PartitionState, brokers: Brokers) -> bool:
    """Whether the leader may stay: it is in the ISR and has not registered again since its election. A leader that
    is shutting down may stay only if no ISR member can take over."""
    leader = brokers.get(state.leader)
    if leader is None or leader.epoch != state.leader_broker_epoch or state.leader not in state.isr:
        return False
    # A broker that is shutting down keeps leading partitions that no other broker can lead.
    return not leader.leaving or not any(can_lead(node, tp, state, brokers) for node in state.isr)


def first_candidate(tp: TopicIdPartition, state: PartitionState, brokers: Brokers) -> int | None:
    """Returns the first replica that may be elected in an unclean election, in sync or not; None if there is none."""
    return next((node for node in state.replicas if can_lead(node, tp, state, brokers)), None)


def with_leader(state: PartitionState, node: int, brokers: Brokers) -> PartitionState:
    """Returns the state with `node` as leader, in a new leader epoch."""
    return replace(state, leader=node, leader_epoch=state.leader_epoch + 1, leader_broker_epoch=brokers[node].epoch)


def with_unclean_leader(state: PartitionState, node: int, brokers: Brokers) -> PartitionState:
    """Returns the state with `node` as leader and sole ISR member. A partition kept only in memory restarts
    empty, at offsets never used before."""
    return with_new_offsets(with_leader(replace(state, isr=(node,)), node, brokers))


def with_new_offsets(state: PartitionState) -> PartitionState:
    """Returns the state of a partition kept only in memory that restarts empty, at an offset never assigned yet."""
    if not state.in_memory:
        return state
    return replace(state, reserved_from=state.reserved_to, reserved_to=state.reserved_to + RESERVED_OFFSETS)


def without_data(state: PartitionState, node: int) -> PartitionState:
    """Returns the state after `node` lost the partition's data: `node` does not lead, and leaves the ISR unless it
    is the only member."""
    if node not in state.isr:
        return state
    isr = tuple(member for member in state.isr if member != node)
    if isr:
        state = replace(state, isr=isr)
    elif state.in_memory:
        state = with_new_offsets(state)
    if state.leader != node:
        return state
    return replace(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1, leader_broker_epoch=NO_EPOCH)


def is_imbalanced(tp: TopicIdPartition, state: PartitionState, brokers: Brokers) -> bool:
    """Whether the preferred leader (the first replica) could lead, but does not."""
    preferred = state.replicas[0]
    return (
        preferred != state.leader
        and state.leader != NO_LEADER
        and preferred in state.isr
        and can_lead(preferred, tp, state, brokers)
    )


def find_state(image: ClusterImage, tp: TopicIdPartition) -> PartitionState:
    state = image.state(tp)
    if state is None:
        raise UnknownTopicOrPartition(f"topic {uuid_text(tp.topic_id)} has no partition {tp.partition}")
    return state


def plan_elect(image: ClusterImage, tp: TopicIdPartition, election: Election) -> list[Op]:
    """Returns the store writes of a requested leader election. Raises Kafka's errors."""
    before = find_state(image, tp)
    return [Put(keys.partition(*tp), elect_requested(image, tp, election).dump(), before.version)]


def elect_requested(image: ClusterImage, tp: TopicIdPartition, election: Election) -> PartitionState:
    """Returns the partition state after a requested leader election. Raises Kafka's errors."""
    state = find_state(image, tp)
    if election is Election.PREFERRED:
        return _elect_preferred(image, tp, state)
    if state.leader != NO_LEADER:
        raise ElectionNotNeeded(f"the partition is led by broker {state.leader}")
    elected = elect_leader(tp, state, image.brokers, unclean=True)
    if elected.leader == NO_LEADER:
        # An operator may restart with a broker that has lost its data, if there is no other.
        node = next((node for node in state.replicas if _is_staying(node, image.brokers)), None)
        if node is None:
            raise EligibleLeadersNotAvailable(f"none of the replicas {list(state.replicas)} is online")
        return with_unclean_leader(state, node, image.brokers)
    return elected


def _is_staying(node: int, brokers: Brokers) -> bool:
    return node in brokers and not brokers[node].leaving


def _elect_preferred(image: ClusterImage, tp: TopicIdPartition, state: PartitionState) -> PartitionState:
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise ElectionNotNeeded(f"the partition is led by its preferred leader, broker {preferred}")
    if preferred in state.isr and can_lead(preferred, tp, state, image.brokers):
        return with_leader(state, preferred, image.brokers)
    elected = elect_leader(tp, state, image.brokers, unclean=False)
    if elected.leader in (state.leader, NO_LEADER):
        raise PreferredLeaderNotAvailable(f"broker {preferred} is offline or not in sync")
    return elected

"""Who leads a partition, and who counts as in sync with it, given who is there. Pure.

`settle` is the one rule that the controller lives by: it looks at a partition and at the brokers, and says how the
partition should be. It is right whatever happened in between, and says the same again until something changes.
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Final

from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, NO_LEADER, Broker, ClusterImage, PartitionState, Place
from penstock.coordination.store import Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, UnknownTopicOrPartition
from penstock.foundation.ids import uuid_text

RESERVED_OFFSETS: Final = 1 << 24
"""Offsets that a memory partition reserves at a time."""

Brokers = Mapping[int, Broker]


class ElectionNotNeeded(PenstockError):
    code = ErrorCode.ELECTION_NOT_NEEDED


class PreferredLeaderNotAvailable(PenstockError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(PenstockError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class Election(IntEnum):
    """What an ElectLeaders request asks for (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def settle(place: Place, state: PartitionState, brokers: Brokers, *, unclean: bool) -> PartitionState:
    """How the partition should be. The very same state, if it is."""
    if _is_settled(state, brokers):
        return state
    isr = _in_sync(place, state, brokers)
    settled = complete(place, replace(state, isr=isr) if isr != state.isr else state, brokers)
    if _may_go_on(place, settled, brokers):
        if len(settled.replicas) < len(state.replicas):  # those that were removed must not be heard any more
            return lead(settled, settled.leader, brokers)
        return settled
    for node in settled.replicas:
        if node in settled.isr and is_able(node, place, settled, brokers):
            return lead(settled, node, brokers)
    if unclean and (found := _first_able(place, settled, brokers)) is not None:
        return lead_uncleanly(settled, found, brokers)
    if settled.leader == NO_LEADER:
        return settled
    return replace(settled, leader=NO_LEADER, leader_epoch=settled.leader_epoch + 1, leader_broker_epoch=NO_EPOCH)


def _is_settled(state: PartitionState, brokers: Brokers) -> bool:
    """Whether it can be seen at a glance that nothing is to be done: nearly always."""
    leader = brokers.get(state.leader)
    if leader is None or leader.epoch != state.leader_broker_epoch or state.adding or state.removing:
        return False
    for node in state.isr:
        member = brokers.get(node)
        if member is None or member.leaving or member.lost:
            return False
    return state.leader in state.isr


def is_able(node: int, place: Place, state: PartitionState, brokers: Brokers) -> bool:
    """Whether a broker may be made the leader of a partition that it is in sync with."""
    broker = brokers.get(node)
    return broker is not None and not broker.leaving and not broker.has_lost(place, state)


def _in_sync(place: Place, state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    """The ISR without those that are gone, or going. The last ones stay: they have what was acknowledged."""
    able = tuple(node for node in state.isr if is_able(node, place, state, brokers))
    if able:
        return able
    there = tuple(node for node in state.isr if node in brokers and not brokers[node].has_lost(place, state))
    return there or state.isr


def complete(place: Place, state: PartitionState, brokers: Brokers) -> PartitionState:
    """The end of a reassignment, once all replicas that shall remain are in sync (KIP-455)."""
    if not state.is_reassigned:
        return state
    replicas = tuple(node for node in state.replicas if node not in state.removing)
    isr = tuple(node for node in state.isr if node not in state.removing)
    if (
        not replicas
        or not set(replicas) <= set(isr)
        or not any(is_able(node, place, state, brokers) for node in replicas)
    ):
        return state
    return replace(state, replicas=replicas, isr=isr, adding=(), removing=())


def _may_go_on(place: Place, state: PartitionState, brokers: Brokers) -> bool:
    """Whether the leader is the one that was elected, and has not been restarted since."""
    leader = brokers.get(state.leader)
    if leader is None or leader.epoch != state.leader_broker_epoch or state.leader not in state.isr:
        return False
    # Whoever is leaving leads until the end what nobody else can lead.
    return not leader.leaving or not any(is_able(node, place, state, brokers) for node in state.isr)


def _first_able(place: Place, state: PartitionState, brokers: Brokers) -> int | None:
    return next((node for node in state.replicas if is_able(node, place, state, brokers)), None)


def lead(state: PartitionState, node: int, brokers: Brokers) -> PartitionState:
    """Under a new leader, or under the same one in a new epoch."""
    return replace(state, leader=node, leader_epoch=state.leader_epoch + 1, leader_broker_epoch=brokers[node].epoch)


def lead_uncleanly(state: PartitionState, node: int, brokers: Brokers) -> PartitionState:
    """Under a leader that may not have all that was acknowledged. In memory: above every offset ever given."""
    return restarted(lead(replace(state, isr=(node,)), node, brokers))


def restarted(state: PartitionState) -> PartitionState:
    """A memory partition that begins anew: above every offset it ever gave."""
    if not state.in_memory:
        return state
    return replace(state, reserved_from=state.reserved_to, reserved_to=state.reserved_to + RESERVED_OFFSETS)


def without_data(state: PartitionState, node: int) -> PartitionState:
    """A broker is about to register and has nothing of this partition: it must not count as in sync any more.

    The last one in sync is not taken out: what was acknowledged may come back with it. In memory it cannot, so the
    partition begins anew. On disk the broker says in its registration that it has lost it (Broker.lost).
    """
    if node not in state.isr:
        return state
    isr = tuple(member for member in state.isr if member != node)
    if isr:
        state = replace(state, isr=isr)
    elif state.in_memory:
        state = restarted(state)
    if state.leader != node:
        return state
    return replace(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1, leader_broker_epoch=NO_EPOCH)


def prefers_another(place: Place, state: PartitionState, brokers: Brokers) -> bool:
    """Whether the first replica could lead instead of the one that does."""
    preferred = state.replicas[0]
    return (
        preferred != state.leader
        and state.leader != NO_LEADER
        and preferred in state.isr
        and is_able(preferred, place, state, brokers)
    )


def known_state(image: ClusterImage, place: Place) -> PartitionState:
    state = image.state(place)
    if state is None:
        raise UnknownTopicOrPartition(f"topic {uuid_text(place.topic_id)} has no partition {place.number}")
    return state


def plan_elect(image: ClusterImage, place: Place, election: Election) -> list[Op]:
    """The write that holds an election. Raises what Kafka would answer."""
    before = known_state(image, place)
    return [Put(keys.partition(*place), elect(image, place, election).dump(), before.version)]


def elect(image: ClusterImage, place: Place, election: Election) -> PartitionState:
    """The state after an election that somebody asks for. Raises what Kafka would answer."""
    state = known_state(image, place)
    if election is Election.PREFERRED:
        return _elect_preferred(image, place, state)
    if state.leader != NO_LEADER:
        raise ElectionNotNeeded(f"the partition is led by broker {state.leader}")
    settled = settle(place, state, image.brokers, unclean=True)
    if settled.leader == NO_LEADER:
        # An operator may begin anew with a broker that has lost its data, if there is no other.
        node = next((node for node in state.replicas if _is_staying(node, image.brokers)), None)
        if node is None:
            raise EligibleLeadersNotAvailable(f"none of the replicas {list(state.replicas)} is there")
        return lead_uncleanly(state, node, image.brokers)
    return settled


def _is_staying(node: int, brokers: Brokers) -> bool:
    return node in brokers and not brokers[node].leaving


def _elect_preferred(image: ClusterImage, place: Place, state: PartitionState) -> PartitionState:
    preferred = state.replicas[0]
    if state.leader == preferred:
        raise ElectionNotNeeded(f"the partition is led by its preferred leader, broker {preferred}")
    if preferred in state.isr and is_able(preferred, place, state, image.brokers):
        return lead(state, preferred, image.brokers)
    settled = settle(place, state, image.brokers, unclean=False)
    if settled.leader in (state.leader, NO_LEADER):
        raise PreferredLeaderNotAvailable(f"broker {preferred} is not in sync, or not there")
    return settled

"""The target of a consumer group: who is to have which partitions once all have reconciled (KIP-848). Pure.

Where a group is large, it is worked out in pieces: see target_assignment.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.steps import Steps, run_steps
from penstock.groups.changes import Change
from penstock.groups.consumer import records as consumer_records
from penstock.groups.consumer.assignors import ASSIGNORS, MEMBERS_STEP, Shares, Subscriber
from penstock.groups.consumer.members import Member, TopicIdPartition
from penstock.groups.consumer.state import GroupState
from penstock.groups.settings import UNIFORM

MEMBERS_AT_ONCE: Final = 2000
COST_AT_ONCE: Final = 4000
"""What is worked out at once costs about so many microseconds, and has so many members at most."""


def preferred_assignor(members: Iterable[Member], known: Sequence[str]) -> str:
    """The one that most members ask for; the first of those that are known, if none does or several do."""
    votes = Counter(member.assignor for member in members)
    return max(known, key=lambda name: votes[name], default=UNIFORM)


def topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[bytes]:
    """Of the topics that are there."""
    found = (image.shown_by_name.get(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)


def is_large(state: GroupState, image: ClusterImage) -> bool:
    """Whether it takes too long to work out the target at once."""
    if len(state.members) > MEMBERS_AT_ONCE:
        return True
    topics = [image.shown_by_name.get(name) for name in state.subscribed()]
    places = sum(len(topic.partitions) for topic in topics if topic is not None)
    wanted = [state.topics_of(member) for member in state.members.values()]
    are_alike = all(names is wanted[0] or names == wanted[0] for names in wanted)
    cost = places // 2 + len(wanted) if are_alike else 2 * places + sum(map(len, wanted))
    return cost > COST_AT_ONCE


def new_target(
    group_id: str, state: GroupState, image: ClusterImage, assignors: Sequence[str], now_ms: int
) -> Iterator[Change]:
    """Work out the target for the group's epoch: what differs from the last one, and its epoch."""
    for member_id, share in run_steps(shares_of(state, image, assignors)).items():
        if _differs(state, member_id, share):
            yield consumer_records.target(group_id, member_id, share)
    yield consumer_records.target_epoch(group_id, state.epoch, now_ms)


def _differs(state: GroupState, member_id: str, share: frozenset[TopicIdPartition]) -> bool:
    known = state.targets.get(member_id)
    return known is not share and known != share


def shares_of(state: GroupState, image: ClusterImage, assignors: Sequence[str]) -> Steps[Shares]:
    """What each member is to have. `state` must not change meanwhile."""
    wanted: dict[frozenset[str], frozenset[bytes]] = {}  # most members subscribe to the same
    subscribers = []
    nothing = frozenset[TopicIdPartition]()
    for member in state.members.values():
        names = state.topics_of(member)
        topics = wanted.get(names)
        if topics is None:
            topics = wanted[names] = topic_ids(names, image)
            hash(topics)  # which is remembered: later, those of all members would be worked out in one step
            yield
        held = state.targets.get(member.member_id, nothing)
        subscribers.append(Subscriber(member.member_id, member.instance_id, topics, held))
        if not len(subscribers) % MEMBERS_STEP:
            yield
    partitions = {}
    for topic_id in topic_ids(state.subscribed(), image):
        partitions[topic_id] = sorted(image.shown[topic_id].partitions)
        yield
    assign = ASSIGNORS[preferred_assignor(state.members.values(), assignors)]
    return (yield from assign(subscribers, partitions))

"""Computes the target assignment of a consumer group with the preferred server-side assignor (KIP-848). Pure.

The targets of large groups are computed in time slices: see modern/target_assignment.py.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps
from penstock.groups.consumer.assignors import ASSIGNORS, MEMBERS_STEP, Assignments, Subscriber
from penstock.groups.consumer.members import Member
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.settings import UNIFORM

MEMBERS_AT_ONCE: Final = 2000
COST_AT_ONCE: Final = 4000
"""Maximum estimated time, in microseconds, of computing a target assignment at once and not in time slices."""


def preferred_assignor(members: Iterable[Member], known: Sequence[str]) -> str:
    """Returns the assignor in `known` that most members prefer; the first one among equally preferred assignors."""
    votes = Counter(member.assignor for member in members)
    return max(known, key=lambda name: votes[name], default=UNIFORM)


def topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[bytes]:
    """Returns the ids of the topics with these names; skips names of topics that do not exist."""
    found = (image.shown_by_name.get(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)


def is_large(state: ConsumerState, image: ClusterImage) -> bool:
    """Whether computing the target assignment at once would block the event loop for too long."""
    if len(state.members) > MEMBERS_AT_ONCE:
        return True
    topics = [image.shown_by_name.get(name) for name in state.subscribed()]
    tps = sum(len(topic.partitions) for topic in topics if topic is not None)
    wanted = [state.topics_of(member) for member in state.members.values()]
    are_alike = all(names is wanted[0] or names == wanted[0] for names in wanted)
    cost = tps // 2 + len(wanted) if are_alike else 2 * tps + sum(map(len, wanted))
    return cost > COST_AT_ONCE


def compute_assignments(state: ConsumerState, image: ClusterImage, assignors: Sequence[str]) -> Steps[Assignments]:
    """Computes each member's target assignment; a generator of short steps. `state` must not change until it ends."""
    wanted: dict[frozenset[str], frozenset[bytes]] = {}  # most members have the same subscription
    subscribers = []
    nothing = frozenset[TopicIdPartition]()
    for member in state.members.values():
        names = state.topics_of(member)
        topics = wanted.get(names)
        if topics is None:
            topics = wanted[names] = topic_ids(names, image)
            hash(topics)  # cached: else the hashes of all members would be computed in one step
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

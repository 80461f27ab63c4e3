"""The target of a share group: who is to fetch from which partitions (KIP-932). Pure."""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.steps import Steps
from penstock.groups.consumer.assignors import Shares, Subscriber
from penstock.groups.share.assignor import assign_simple
from penstock.groups.share.members import NOTHING_ASSIGNED
from penstock.groups.share.requests import can_deliver
from penstock.groups.share.state import ShareState

COST_AT_ONCE: Final = 4000
"""What is worked out at once costs about so many microseconds."""


def deliverable(state: ShareState, image: ClusterImage, names: Iterable[str]) -> list[Topic]:
    """Of the topics that can be assigned: not those whose delivery state is on its way out."""
    found = (image.by_name.get(name) for name in names)
    return [
        topic
        for topic in found
        if topic is not None and can_deliver(topic) and topic.topic_id not in state.delivering.deleting
    ]


def is_large(state: ShareState, image: ClusterImage) -> bool:
    """Whether it takes too long to work out the target at once."""
    topics = deliverable(state, image, state.subscribed())
    places = sum(len(topic.partitions) for topic in topics)
    return 2 * places + sum(len(member.topic_names) for member in state.members.values()) > COST_AT_ONCE


def shares_of(state: ShareState, image: ClusterImage) -> Steps[Shares]:
    """What each member is to have. `state` must not change meanwhile."""
    known: dict[frozenset[str], frozenset[bytes]] = {}  # most members subscribe to the same
    subscribers = []
    for member in state.members.values():
        topics = known.get(member.topic_names)
        if topics is None:
            found = deliverable(state, image, member.topic_names)
            topics = known[member.topic_names] = frozenset(topic.topic_id for topic in found)
            hash(topics)  # which is remembered: later, those of all members would be worked out in one step
            yield
        held = state.targets.get(member.member_id, NOTHING_ASSIGNED)
        subscribers.append(Subscriber(member.member_id, None, topics, held))
    found = deliverable(state, image, state.subscribed())
    partitions = {topic.topic_id: sorted(topic.partitions) for topic in found}
    return (yield from assign_simple(subscribers, partitions))

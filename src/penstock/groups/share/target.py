"""Computes the target assignment of a share group: the partitions that each member fetches from (KIP-932). Pure."""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.steps import Steps
from penstock.groups.consumer.assignors import Assignments, Subscriber
from penstock.groups.share.assignor import assign_simple
from penstock.groups.share.members import NOTHING_ASSIGNED
from penstock.groups.share.requests import can_deliver
from penstock.groups.share.state import ShareState

COST_AT_ONCE: Final = 4000
"""Maximum estimated time, in microseconds, of computing a target assignment at once and not in time slices."""


def deliverable(state: ShareState, image: ClusterImage, names: Iterable[str]) -> list[Topic]:
    """Returns those topics in `names` that a share group can read and whose delivery state is not being deleted."""
    found = (image.by_name.get(name) for name in names)
    return [
        topic
        for topic in found
        if topic is not None and can_deliver(topic) and topic.topic_id not in state.delivery_topics.deleting
    ]


def is_large(state: ShareState, image: ClusterImage) -> bool:
    """Whether computing the target assignment at once would block the event loop for too long."""
    topics = deliverable(state, image, state.subscribed())
    places = sum(len(topic.partitions) for topic in topics)
    return 2 * places + sum(len(member.topic_names) for member in state.members.values()) > COST_AT_ONCE


def compute_assignments(state: ShareState, image: ClusterImage) -> Steps[Assignments]:
    """Computes each member's target assignment; a generator of short steps. `state` must not change until it ends."""
    known: dict[frozenset[str], frozenset[bytes]] = {}  # most members have the same subscription
    subscribers = []
    for member in state.members.values():
        topics = known.get(member.topic_names)
        if topics is None:
            found = deliverable(state, image, member.topic_names)
            topics = known[member.topic_names] = frozenset(topic.topic_id for topic in found)
            hash(topics)  # cached: else the hashes of all members would be computed in one step
            yield
        held = state.targets.get(member.member_id, NOTHING_ASSIGNED)
        subscribers.append(Subscriber(member.member_id, None, topics, held))
    found = deliverable(state, image, state.subscribed())
    partitions = {topic.topic_id: sorted(topic.partitions) for topic in found}
    return (yield from assign_simple(subscribers, partitions))

"""The target of a consumer group: who is to have which partitions once all have reconciled (KIP-848)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from penstock.cluster.image import ClusterImage
from penstock.groups import consumer_records
from penstock.groups.assignors import ASSIGNORS, Subscriber
from penstock.groups.changes import Change
from penstock.groups.consumer_members import Member, TopicIdPartition
from penstock.groups.consumer_state import GroupState
from penstock.groups.settings import UNIFORM


def preferred_assignor(members: Iterable[Member], known: Sequence[str]) -> str:
    """The one that most members ask for; the first of those that are known, if none does or several do."""
    votes = Counter(member.assignor for member in members)
    return max(known, key=lambda name: votes[name], default=UNIFORM)


def topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[bytes]:
    """Of the topics that are there."""
    found = (image.shown_by_name.get(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)


def new_target(
    group_id: str, state: GroupState, image: ClusterImage, assignors: Sequence[str], now_ms: int
) -> Iterator[Change]:
    """Work out the target for the group's epoch: what differs from the last one, and its epoch."""
    wanted: dict[frozenset[str], frozenset[bytes]] = {}  # most members subscribe to the same
    subscribers = []
    targets, nothing = state.targets, frozenset[TopicIdPartition]()
    for member in state.members.values():
        names = state.topics_of(member)
        topics = wanted.get(names)
        if topics is None:
            topics = wanted[names] = topic_ids(names, image)
        held = targets.get(member.member_id, nothing)
        subscribers.append(Subscriber(member.member_id, member.instance_id, topics, held))
    partitions = {
        topic_id: sorted(image.shown[topic_id].partitions) for topic_id in frozenset().union(*wanted.values())
    }
    assign = ASSIGNORS[preferred_assignor(state.members.values(), assignors)]
    for member_id, share in assign(subscribers, partitions).items():
        known = targets.get(member_id)
        if known is not share and known != share:
            yield consumer_records.target(group_id, member_id, share)
    yield consumer_records.target_epoch(group_id, state.epoch, now_ms)

"""Checks whether a member of a streams group may commit or fetch offsets."""

from collections.abc import Collection

from penstock.cluster.image import ClusterImage
from penstock.groups.consumer.members import JOINING
from penstock.groups.errors import StaleMemberEpoch, UnknownMemberId
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.tasks import Role, Task
from penstock.groups.streams.topology import source_topics


def check_commit(
    state: StreamsState,
    image: ClusterImage,
    member_id: str,
    epoch: int,
    partitions: Collection[tuple[bytes, int]],
) -> None:
    """Raises UnknownMemberId or StaleMemberEpoch unless the member may commit offsets of `partitions` (by topic
    id). With an older epoch, it may commit partitions of tasks that it was assigned by then and still holds."""
    if epoch < JOINING and not state.members:
        return  # an administrator
    member = _member(state, member_id)
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise StaleMemberEpoch(f"member {member_id} is in epoch {member.epoch}, not {epoch}")
    readers = _readers(state)
    for topic_id, number in partitions:
        topic = image.shown.get(topic_id)
        since = None
        for subtopology_id in readers.get(topic.name, ()) if topic is not None else ():
            task = Task(Role.ACTIVE, subtopology_id, number)
            since = member.assigned.get(task, member.revoking.get(task, since))
        if since is None or epoch < since:
            raise StaleMemberEpoch(f"member {member_id} did not have partition {number} in epoch {epoch}")


def check_fetch(state: StreamsState, member_id: str | None, epoch: int) -> None:
    """Raises UnknownMemberId or StaleMemberEpoch unless the member may fetch committed offsets."""
    if member_id is None and epoch < JOINING:
        return
    member = _member(state, member_id or "")
    if epoch != member.epoch:
        raise StaleMemberEpoch(f"member {member_id} is in epoch {member.epoch}, not {epoch}")


def _member(state: StreamsState, member_id: str) -> StreamsMember:
    member = state.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"{member_id!r} is not a member of the group; it has to join")
    return member


def _readers(state: StreamsState) -> dict[str, list[str]]:
    """Returns the ids of the subtopologies that read each topic, by topic name."""
    readers: dict[str, list[str]] = {}
    for one in state.topology.subtopologies if state.topology is not None else ():
        for name in source_topics(one):
            readers.setdefault(name, []).append(one.subtopology_id)
    return readers

"""Validates and decodes ShareGroupHeartbeat requests (KIP-932)."""

from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.decision import ClientRequest
from penstock.foundation.errors import InvalidRequest
from penstock.groups.errors import FencedMemberEpoch
from penstock.groups.modern.members import JOINING, LEAVING, by_topic
from penstock.groups.modern.requests import check_not_blank
from penstock.groups.share.members import ShareMember
from penstock.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    TopicPartitions,
)


def check_heartbeat(request: ShareGroupHeartbeatRequest, image: ClusterImage) -> None:
    """Raises InvalidRequest if fields are inconsistent, or if the group id is the name of a FIFO queue."""
    check_not_blank({"member id": request.member_id, "group id": request.group_id, "rack id": request.rack_id})
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        raise InvalidRequest("a member that joins must set its subscribed topics")
    if request.member_epoch < LEAVING:
        raise InvalidRequest(f"member epoch {request.member_epoch}; expected {LEAVING} or more")
    queue = image.queues.get(request.group_id)
    if queue is not None and queue.settings.is_fifo and request.subscribed_topic_names is not None:
        topic = image.topics.get(queue.topic_id)
        if topic is not None and topic.name in request.subscribed_topic_names:
            # Share consumers do not know message groups: the order could not be kept.
            raise InvalidRequest(
                f"{request.group_id!r} is a FIFO queue, which share consumers cannot read; "
                "receive from it by SQS, or read its topic in a share group of another name"
            )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Raises FencedMemberEpoch unless the epoch is the member's current or (after a lost response) previous epoch."""
    # The response with the new epoch may have been lost.
    if epoch not in (JOINING, member.epoch) and not (epoch < member.epoch and epoch == member.previous_epoch):
        raise FencedMemberEpoch(
            f"member {member.member_id} is in epoch {member.epoch}, not {epoch}; it has to join again"
        )


def updated(member: ShareMember, command: ClientRequest) -> ShareMember:
    """Returns the member updated with the fields that the request contains."""
    request: ShareGroupHeartbeatRequest = command.body
    names = request.subscribed_topic_names
    changed = member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topic_names=member.topic_names if names is None else frozenset(names),
    )
    return member if changed == member else changed


def assignment_of(member: ShareMember) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(member.assigned).items()
        ]
    )


def can_deliver(topic: Topic | None) -> bool:
    """Whether a share group can read the topic: it exists, is not internal, and has companion logs (second logs of
    its partitions, for delivery state)."""
    return topic is not None and bool(topic.companion) and not topic.is_internal

"""Validates and decodes ConsumerGroupHeartbeat requests (KIP-848)."""

from collections.abc import Sequence
from typing import Final

from penstock.foundation.decision import ClientRequest
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.consumer.members import Held, Member
from penstock.groups.errors import FencedMemberEpoch, UnsupportedAssignor
from penstock.groups.modern.members import AWAY, JOINING, LEAVING, by_topic
from penstock.groups.modern.records import read_partitions
from penstock.groups.modern.requests import check_not_blank
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

OWN_MEMBER_ID_SINCE: Final = 1
"""First request version in which members choose their own ids (KIP-1082); before it, the broker assigns the ids."""


def check_heartbeat(command: ClientRequest, assignors: Sequence[str]) -> None:
    """Raises InvalidRequest if fields are inconsistent, UnsupportedAssignor if the assignor is not in `assignors`."""
    request: ConsumerGroupHeartbeatRequest = command.body
    epoch = request.member_epoch
    if command.version >= OWN_MEMBER_ID_SINCE or epoch > JOINING or epoch == LEAVING:
        check_not_blank({"member id": request.member_id})
    check_not_blank(
        {"group id": request.group_id, "group.instance.id": request.instance_id, "rack id": request.rack_id}
    )
    if epoch == JOINING:
        _check_joining(request)
    elif epoch == AWAY and request.instance_id is None:
        raise InvalidRequest(f"epoch {AWAY} of member {request.member_id} needs a group.instance.id")
    elif epoch < AWAY:
        raise InvalidRequest(f"member epoch {epoch}; expected {AWAY} or more")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"assignor {request.server_assignor!r} is not supported; expected {', '.join(assignors)}"
        )


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequest("a member that joins must set its rebalance timeout")
    if request.topic_partitions is None or len(request.topic_partitions) > 0:
        raise InvalidRequest("a member that joins must own no partitions")
    # They may be empty: a member may subscribe to nothing.
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequest("a member that joins must set its subscribed topics")


def check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises FencedMemberEpoch unless the epoch is the member's current or (after a lost response) previous epoch."""
    epoch = request.member_epoch
    if epoch in (JOINING, member.epoch):
        return
    # The response with the new epoch may have been lost; then the member owns only assigned partitions.
    if epoch < member.epoch and epoch == member.previous_epoch:
        owned = owned_in(request)
        if owned is not None and all(tp in member.assigned for tp in owned):
            return
    raise FencedMemberEpoch(
        f"member {member.member_id} is in epoch {member.epoch}, not {epoch}; "
        "it has to give up its partitions and join again"
    )


def owned_in(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicIdPartition] | None:
    """Returns the partitions that the member reports as owned; None if the request does not contain them."""
    if request.topic_partitions is None:
        return None
    return read_partitions(request.topic_partitions)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request contains all fields, as members send it when they join or may have missed a response."""
    has_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and has_topics and request.topic_partitions is not None


def updated(member: Member, command: ClientRequest) -> Member:
    """Returns the member updated with the fields that the request contains."""
    request: ConsumerGroupHeartbeatRequest = command.body
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    if _is_keepalive(request) and (member.client_id, member.client_host, member.classic) == (
        command.client_id,
        command.client_host,
        None,
    ):
        return member
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _is_keepalive(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request leaves all of the member's fields unchanged, as most heartbeats do."""
    fields = (
        request.instance_id,
        request.rack_id,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
    )
    return request.rebalance_timeout_ms == -1 and all(value is None for value in fields)


def assignment_of(held: Held) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(held).items()
        ]
    )

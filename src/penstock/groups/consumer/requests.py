"""What a member of a consumer group says in a heartbeat, and whether that makes sense (KIP-848)."""

from collections.abc import Sequence
from typing import Final

from penstock.foundation.decision import Ask
from penstock.foundation.errors import InvalidRequest
from penstock.groups.consumer.errors import FencedMemberEpoch, UnsupportedAssignor
from penstock.groups.consumer.members import AWAY, JOINING, LEAVING, Held, Member, TopicIdPartition, by_topic
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

OWN_MEMBER_ID_SINCE: Final = 1
"""The version from which members name themselves (KIP-1082); before, the broker gave them their ids."""


def check_heartbeat(ask: Ask, assignors: Sequence[str]) -> None:
    """Raises InvalidRequest for fields that do not go together, and UnsupportedAssignor."""
    request: ConsumerGroupHeartbeatRequest = ask.body
    epoch = request.member_epoch
    if ask.version >= OWN_MEMBER_ID_SINCE or epoch > JOINING or epoch == LEAVING:
        _check_text("member id", request.member_id)
    _check_text("group id", request.group_id)
    _check_text("group.instance.id", request.instance_id)
    _check_text("rack id", request.rack_id)
    if epoch == JOINING:
        _check_joining(request)
    elif epoch == AWAY and request.instance_id is None:
        raise InvalidRequest(f"member {request.member_id} leaves for a while without a group.instance.id")
    elif epoch < AWAY:
        raise InvalidRequest(f"member epoch {epoch}; expected {AWAY} or more")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"no assignor is called {request.server_assignor!r}; known are {', '.join(assignors)}"
        )


def _check_text(what: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise InvalidRequest(f"the {what} is empty")


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequest("a member that joins has to say its rebalance timeout")
    if request.topic_partitions is None or len(request.topic_partitions) > 0:
        raise InvalidRequest("a member that joins has to say that it owns no partitions")
    # Neither names nor an expression are fine if they are empty: who subscribes to nothing is a member too.
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequest("a member that joins has to say which topics it subscribes to")


def check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """Raises FencedMemberEpoch unless the member may speak of this epoch."""
    epoch = request.member_epoch
    if epoch in (JOINING, member.epoch):
        return
    # The response that told the new epoch may have been lost; then the member owns no more than it should.
    if epoch < member.epoch and epoch == member.previous_epoch:
        owned = owned_in(request)
        if owned is not None and all(place in member.assigned for place in owned):
            return
    raise FencedMemberEpoch(
        f"member {member.member_id} is in epoch {member.epoch}, not {epoch}; "
        "it has to give up its partitions and join again"
    )


def owned_in(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicIdPartition] | None:
    """The partitions that the member says it owns; None if it has nothing new to say about them."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id, number) for topic in request.topic_partitions for number in topic.partitions
    )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything, as it does when it joins and when it may have missed a response."""
    has_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and has_topics and request.topic_partitions is not None


def updated(member: Member, ask: Ask) -> Member:
    """The member with what it says about itself; what it does not say stays as it was."""
    request: ConsumerGroupHeartbeatRequest = ask.body
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    if _says_nothing(request) and (member.client_id, member.client_host, member.classic) == (
        ask.client_id,
        ask.client_host,
        None,
    ):
        return member
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _says_nothing(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says only that it is there, as it does nearly always."""
    said = (
        request.instance_id,
        request.rack_id,
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.server_assignor,
    )
    return request.rebalance_timeout_ms == -1 and all(value is None for value in said)


def assignment_of(held: Held) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(held).items()
        ]
    )

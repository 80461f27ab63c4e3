"""DescribeGroups, ConsumerGroupDescribe and ListGroups: what is said about groups to those who are no members."""

from collections.abc import Callable
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import Ask, Decision, Reply, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.membership import State
from penstock.groups.classic.subscribed_topics import CONSUMER
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import Group, Holder
from penstock.groups.share.group import ShareGroup
from penstock.groups.streams.group import StreamsGroup
from penstock.wire.messages import consumer_group_describe
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest

CLASSIC_TYPE: Final = "classic"
CONSUMER_TYPE: Final = "consumer"
SHARE_TYPE: Final = "share"
STREAMS_TYPE: Final = "streams"
"""Also the protocol types of these groups."""


def describe(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """A classic group; to this API, groups of the newer protocol are not there."""
    if not isinstance(group, ClassicGroup):
        # From version 6 on a group that is not there is an error (KIP-1043); before it was dead.
        why = "there is no such group" if group is None else "it is not a classic group"
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
            error_message=f"{group_id!r}: {why}" if version >= 6 else None,
            group_id=group_id,
            group_state=State.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=(),
        )
    protocol = group.protocol if group.state is State.STABLE else None
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.roster
        ],
    )


def describe_consumers(held: Holder, ticket: Ticket, ask: Ask) -> Decision:
    """Consumer groups of the newer protocol; to this API, others are not there."""
    groups = []
    for group_id in ask.body.group_ids:
        group = held.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            groups.append(group.describe())
            continue
        why = "there is no such group" if group is None else "it is not a consumer group"
        groups.append(
            consumer_group_describe.DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"{group_id!r}: {why}",
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=(),
            )
        )
    response = ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)
    return Decision(replies=(Reply(ticket=ticket, value=response),))


def listed(group_id: str, group: Group) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        protocol_type, group_type = group.protocol_type or "", CLASSIC_TYPE
    elif isinstance(group, ShareGroup):
        protocol_type = group_type = SHARE_TYPE
    elif isinstance(group, StreamsGroup):
        protocol_type = group_type = STREAMS_TYPE
    else:
        protocol_type, group_type = CONSUMER, CONSUMER_TYPE
    return ListedGroup(
        group_id=group_id, protocol_type=protocol_type, group_state=group.state_name, group_type=group_type
    )


def filter_of(request: ListGroupsRequest) -> Callable[[ListedGroup], bool]:
    """Says whether a list is to have a group. Names that no state or type has match nothing."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {name.strip().lower() for name in request.types_filter}

    def is_wanted(group: ListedGroup) -> bool:
        return (not states or group.group_state.lower() in states) and (not types or group.group_type in types)

    return is_wanted

"""DescribeGroups, ConsumerGroupDescribe and ListGroups: the state of groups for administrators and tools."""

from collections.abc import Callable
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ClientRequest, Decision, Reply, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.membership import State
from penstock.groups.classic.subscribed_topics import CONSUMER
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.group import CoordinatorView, Group
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
"""CLASSIC_TYPE to STREAMS_TYPE: group types in ListGroups; all but `classic` are also protocol types."""


def describe(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """Handles DescribeGroups for one group. Groups that are not classic are reported as not found."""
    if not isinstance(group, ClassicGroup):
        # Since version 6 a group that does not exist is an error (KIP-1043); before, its state was Dead.
        why = "does not exist" if group is None else "is not a classic group"
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE,
            error_message=f"group {group_id!r} {why}" if version >= 6 else None,
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


def describe_consumers(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest) -> Decision:
    """Handles ConsumerGroupDescribe. Groups that are not consumer groups are reported as not found."""
    groups = []
    for group_id in command.body.group_ids:
        group = coordinator.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            groups.append(group.describe())
            continue
        why = "does not exist" if group is None else "is not a consumer group"
        groups.append(
            consumer_group_describe.DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"group {group_id!r} {why}",
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


def listed_group(group_id: str, group: Group) -> ListedGroup:
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
    """Returns a predicate for the states and types that ListGroups filters by; unknown names match no group."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {name.strip().lower() for name in request.types_filter}

    def is_wanted(group: ListedGroup) -> bool:
        return (not states or group.group_state.lower() in states) and (not types or group.group_type in types)

    return is_wanted

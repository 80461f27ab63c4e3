"""Responses to DescribeGroups, ListGroups, and the describe requests of consumer, share and streams groups."""

from collections.abc import Callable
from typing import Any, Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ClientRequest, Decision, Reply, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.membership import State
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import CoordinatorView, Group
from penstock.groups.modern.group import ModernGroup
from penstock.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest

CLASSIC_TYPE: Final = "classic"
"""The group type of classic groups in ListGroups."""


def describe(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """Describes one group for DescribeGroups; a group that does not exist or is not classic is reported as Dead."""
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


def describe_modern(
    coordinator: CoordinatorView,
    of: type[ModernGroup[Any, Any, Any]],
    ticket: Ticket,
    command: ClientRequest,
    now_ms: int,
) -> Decision:
    """Handles ConsumerGroupDescribe, ShareGroupDescribe or StreamsGroupDescribe, depending on `of`. Groups of
    another kind are reported as not found."""
    requested = of.requested_fields(command.body)
    groups = []
    for group_id in command.body.group_ids:
        try:
            groups.append(of.find(coordinator, group_id).describe(**requested))
        except GroupIdNotFound as error:
            groups.append(of.describe_error(group_id, error))
    response = of.describe_response(throttle_time_ms=0, groups=groups)
    return Decision(replies=(Reply(ticket=ticket, value=response),))


def listed_group(group_id: str, group: Group) -> ListedGroup:
    protocol_type, group_type = "", CLASSIC_TYPE
    if isinstance(group, ModernGroup):
        protocol_type = group_type = group.kind
    elif isinstance(group, ClassicGroup):
        protocol_type = group.protocol_type or ""
    return ListedGroup(
        group_id=group_id, protocol_type=protocol_type, group_state=group.state_name, group_type=group_type
    )


def filter_of(request: ListGroupsRequest) -> Callable[[ListedGroup], bool]:
    """Returns a predicate for the states and types that the request selects; unknown names match no group."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {name.strip().lower() for name in request.types_filter}

    def is_wanted(group: ListedGroup) -> bool:
        return (not states or group.group_state.lower() in states) and (not types or group.group_type in types)

    return is_wanted

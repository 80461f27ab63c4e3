"""Streams group requests at the coordinator: StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071)."""

from typing import Protocol

from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.commands import StreamsTopicsRefused
from penstock.groups.consumer.members import JOINING
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import CoordinatorView
from penstock.groups.streams.description import refused_streams_group
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.requests import check_heartbeat
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


class GroupCreator(CoordinatorView, Protocol):
    """Protocol class: a group coordinator that can create streams groups."""

    def new_streams(self, group_id: str) -> StreamsGroup: ...

    def add_uncommitted(self, group: StreamsGroup) -> None: ...


def heartbeat(coordinator: GroupCreator, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles StreamsGroupHeartbeat. An empty classic group becomes a streams group and keeps its offsets, so that
    a stopped application can migrate from the classic protocol."""
    request: StreamsGroupHeartbeatRequest = command.body
    check_heartbeat(request)
    known = coordinator.groups.get(request.group_id)
    is_vacant = known is None or (isinstance(known, ClassicGroup) and known.is_empty)
    if request.member_epoch != JOINING or not is_vacant:
        return _find_group(coordinator, request.group_id).heartbeat(ticket, command, now_ms)
    group = coordinator.new_streams(request.group_id)
    coordinator.add_uncommitted(group)
    decision = group.heartbeat(ticket, command, now_ms)
    before = known.tombstones() if known is not None else ()
    return decision._replace(persist=(*before, *decision.persist))


def describe(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest) -> Decision:
    """Handles StreamsGroupDescribe; a group of another kind is reported as not found."""
    request: StreamsGroupDescribeRequest = command.body
    groups = []
    for group_id in request.group_ids:
        try:
            groups.append(_find_group(coordinator, group_id).describe())
        except GroupIdNotFound as error:
            groups.append(refused_streams_group(group_id, error))
    response = StreamsGroupDescribeResponse(throttle_time_ms=0, groups=groups)
    return Decision(replies=(Reply(ticket, response),))


def set_creation_error(coordinator: CoordinatorView, command: StreamsTopicsRefused) -> Decision:
    """Stores why internal topics of a group could not be created; heartbeat responses contain the reason."""
    group = coordinator.groups.get(command.group_id)
    if isinstance(group, StreamsGroup):
        group.creation_error = command.reason
    return NOTHING


def _find_group(coordinator: CoordinatorView, group_id: str) -> StreamsGroup:
    """Returns the streams group. Raises GroupIdNotFound if there is none, or the group is of another kind."""
    group = coordinator.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        why = "does not exist" if group is None else "is not a streams group"
        raise GroupIdNotFound(f"group {group_id!r} {why}")
    return group

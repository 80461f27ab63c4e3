"""Streams groups at their coordinator: found, created and described (KIP-1071)."""

from typing import Protocol

from penstock.foundation.decision import NOTHING, Ask, Decision, Reply, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.commands import StreamsTopicsRefused
from penstock.groups.consumer.members import JOINING
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import Holder
from penstock.groups.streams.description import refused_streams_group
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.requests import check_heartbeat
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


class Maker(Holder, Protocol):
    """A coordinator, which also creates groups."""

    def new_streams(self, group_id: str) -> StreamsGroup: ...

    def draft(self, group: StreamsGroup) -> None: ...


def heartbeat(held: Maker, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """StreamsGroupHeartbeat. A classic group without members becomes a streams group, and keeps its offsets: that is
    how an application moves from the classic protocol, while it is stopped."""
    request: StreamsGroupHeartbeatRequest = ask.body
    check_heartbeat(request)
    known = held.groups.get(request.group_id)
    is_vacant = known is None or (isinstance(known, ClassicGroup) and known.is_empty)
    if request.member_epoch != JOINING or not is_vacant:
        return _found(held, request.group_id).heartbeat(ticket, ask, now_ms)
    group = held.new_streams(request.group_id)
    held.draft(group)
    decision = group.heartbeat(ticket, ask, now_ms)
    before = known.tombstones() if known is not None else ()
    return decision._replace(persist=(*before, *decision.persist))


def describe(held: Holder, ticket: Ticket, ask: Ask) -> Decision:
    """StreamsGroupDescribe."""
    request: StreamsGroupDescribeRequest = ask.body
    groups = []
    for group_id in request.group_ids:
        try:
            groups.append(_found(held, group_id).describe())
        except GroupIdNotFound as error:
            groups.append(refused_streams_group(group_id, error))
    response = StreamsGroupDescribeResponse(throttle_time_ms=0, groups=groups)
    return Decision(replies=(Reply(ticket, response),))


def note_refused(held: Holder, command: StreamsTopicsRefused) -> Decision:
    """Topics of a group could not be created: its members are told why."""
    group = held.groups.get(command.group_id)
    if isinstance(group, StreamsGroup):
        group.creation_error = command.reason
    return NOTHING


def _found(held: Holder, group_id: str) -> StreamsGroup:
    """Raises GroupIdNotFound, also for a group of another kind: a name has one."""
    group = held.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        why = "there is none" if group is None else "it is a group of another kind"
        raise GroupIdNotFound(f"streams group {group_id!r}: {why}")
    return group

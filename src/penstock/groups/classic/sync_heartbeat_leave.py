"""SyncGroup, Heartbeat and LeaveGroup for classic groups."""

from collections.abc import Sequence

from penstock.foundation.decision import ClientRequest, Ticket
from penstock.foundation.errors import PenstockError
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.membership import State
from penstock.groups.errors import InconsistentGroupProtocol, RebalanceInProgress, UnknownMemberId
from penstock.groups.outbox import Outbox
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from penstock.wire.messages.sync_group import SyncGroupRequest


def sync(group: ClassicGroup, out: Outbox, ticket: Ticket, command: ClientRequest, now_ms: int) -> None:
    """Handles SyncGroup: replies with the member's assignment, at once or when the leader has sent it."""
    request: SyncGroupRequest = command.body
    group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    check_protocol(group.group_id, (group.protocol_type, group.protocol), request, command.version)
    if group.state is State.PREPARING:
        raise RebalanceInProgress(f"group {group.group_id!r} is rebalancing; join again")
    if group.state is State.COMPLETING:
        group.await_sync(out, request.member_id, ticket)
        if group.leader == request.member_id:
            group.propagate_assignments(out, request.assignments, now_ms)
        return
    member = group.roster.get(request.member_id)
    assert member is not None
    group.mark_synced(member, now_ms)
    out.reply(ticket, group.sync_response(member.assignment))


def check_protocol(
    group_id: str, agreed: tuple[str | None, str | None], request: SyncGroupRequest, version: int
) -> None:
    """Raises InconsistentGroupProtocol if protocol type or name in SyncGroup are not those in `agreed` (KIP-559)."""
    if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        raise InconsistentGroupProtocol("SyncGroup needs a protocol type and a protocol name from version 5 on")
    requested = (request.protocol_type, request.protocol_name)
    if any(mine is not None and mine != theirs for mine, theirs in zip(requested, agreed, strict=True)):
        raise InconsistentGroupProtocol(f"group {group_id!r} uses protocol {agreed}, but the request has {requested}")


def heartbeat(group: ClassicGroup, out: Outbox, ticket: Ticket, command: ClientRequest, now_ms: int) -> None:
    """Handles Heartbeat: restarts the member's session timeout and replies whether the member has to rejoin."""
    request: HeartbeatRequest = command.body
    group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    member = group.roster.get(request.member_id)
    assert member is not None
    group.restart_session_timer(member, now_ms)
    if group.state is State.PREPARING:
        out.reply(ticket, RebalanceInProgress(f"group {group.group_id!r} is rebalancing; join again"))
    else:
        out.reply(ticket, HeartbeatResponse(error_code=0))


def leave(group: ClassicGroup | None, out: Outbox, ticket: Ticket, command: ClientRequest, now_ms: int) -> None:
    """Handles LeaveGroup: removes members that leave or that an administrator removes, with a single rebalance."""
    request: LeaveGroupRequest = command.body
    leaving = leaving_members(request, command.version)
    size = len(group.roster) if group else 0
    codes = [_leave(group, out, identity) for identity in leaving]
    if group is not None:
        if len(group.roster) < size:
            group.rebalance(out, now_ms)
        else:
            group.complete_if_joined(out, now_ms)
    out.reply(ticket, leave_response(leaving, codes, command.version))


def leaving_members(request: LeaveGroupRequest, version: int) -> Sequence[MemberIdentity]:
    """Returns the members that a LeaveGroup names: one member before version 3, one or more from version 3 on."""
    return request.members if version >= 3 else (MemberIdentity(member_id=request.member_id),)


def leave_response(leaving: Sequence[MemberIdentity], codes: Sequence[int], version: int) -> LeaveGroupResponse:
    """Returns the LeaveGroup response; `codes` has one error code for each member in `leaving`."""
    if version < 3:
        return LeaveGroupResponse(error_code=codes[0])
    members = [
        MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
        for identity, code in zip(leaving, codes, strict=True)
    ]
    return LeaveGroupResponse(error_code=0, members=members)


def _leave(group: ClassicGroup | None, out: Outbox, identity: MemberIdentity) -> int:
    """Removes one member from the group; returns the error code for this member."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if group is None:
        return UnknownMemberId.code
    if member_id in group.pending:
        group.remove_pending_member(member_id)
        return 0
    if not member_id:
        # Administrators identify static members by their group.instance.id alone (KIP-345).
        member_id = group.roster.by_instance.get(instance_id or "", "")
    try:
        group.check_member(member_id, instance_id)
    except PenstockError as error:
        return error.code
    group.remove(out, member_id)
    return 0

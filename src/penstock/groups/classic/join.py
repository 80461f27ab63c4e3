"""JoinGroup for classic groups: accepts or refuses members, assigns member ids, and starts rebalances."""

from collections.abc import Callable
from dataclasses import replace

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ClientRequest, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.members import Member, Protocols, Roster, protocols_of
from penstock.groups.classic.membership import State
from penstock.groups.errors import GroupMaxSizeReached, InconsistentGroupProtocol
from penstock.groups.outbox import Outbox
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NewMemberId = Callable[[str], str]
"""Type of functions that return a unique member id starting with the given name."""


def join(
    group: ClassicGroup, out: Outbox, ticket: Ticket, command: ClientRequest, new_member_id: NewMemberId, now_ms: int
) -> None:
    """Handles JoinGroup: adds a new member or lets a member rejoin; replies at once, or when the join phase ends."""
    request: JoinGroupRequest = command.body
    protocols = protocols_of(request.protocols)
    if not _accepts_member(group, request):
        _refuse_full_group(group, out, ticket, request.member_id, now_ms)
        return
    _check_protocols(group, request.protocol_type, protocols)
    if request.member_id in group.pending and request.group_instance_id is None:
        _add(group, ticket, command, request.member_id, protocols, now_ms)
    elif request.member_id:
        _rejoin(group, out, ticket, command, protocols, now_ms)
        return
    elif request.group_instance_id is not None:
        old_id = group.roster.by_instance.get(request.group_instance_id)
        member_id = new_member_id(request.group_instance_id)
        if old_id is not None:
            _rejoin_static_member(group, out, ticket, command, old_id, member_id, protocols, now_ms)
            return
        _add(group, ticket, command, member_id, protocols, now_ms)
    else:
        member_id = new_member_id(command.client_id)
        if command.version >= 4:
            # A client whose response is lost would come back as another member, again and again (KIP-394).
            group.add_pending_member(member_id, request.session_timeout_ms, now_ms)
            out.reply(ticket, member_id_required(member_id, command.version))
            return
        _add(group, ticket, command, member_id, protocols, now_ms)
    group.rebalance(out, now_ms)


# -- checks


def _accepts_member(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Whether group.max.size allows the member to join. During a rebalance, only rejoined members are counted."""
    size_max = group.settings.size_max
    if group.is_empty:
        return True
    if not request.member_id and request.group_instance_id in group.roster.by_instance:
        return True  # it replaces itself
    if group.state is State.PREPARING:
        return request.member_id in group.joins or len(group.joins) < size_max
    return request.member_id in group.roster or len(group.roster) < size_max


def _refuse_full_group(group: ClassicGroup, out: Outbox, ticket: Ticket, member_id: str, now_ms: int) -> None:
    """Replies GroupMaxSizeReached; if the sender is a member already, removes it and rebalances the group."""
    size_max = group.settings.size_max
    out.reply(ticket, GroupMaxSizeReached(f"group {group.group_id!r} has {size_max} members, which is its limit"))
    if member_id in group.pending:
        group.remove_pending_member(member_id)
        group.complete_if_joined(out, now_ms)
    elif member_id in group.roster:
        group.remove(out, member_id)
        group.rebalance(out, now_ms)


def _check_protocols(group: ClassicGroup, protocol_type: str, protocols: Protocols) -> None:
    if not group.roster:
        if not protocol_type or not protocols:
            raise InconsistentGroupProtocol("a member needs a protocol type and at least one protocol")
        return
    if protocol_type != group.protocol_type:
        raise InconsistentGroupProtocol(f"group {group.group_id!r} has protocol type {group.protocol_type!r}")
    if not group.roster.supports_any(name for name, _ in protocols):
        raise InconsistentGroupProtocol(f"members of group {group.group_id!r} support none of these protocols")


# -- members


def rebalance_timeout_ms(command: ClientRequest) -> int:
    """Returns the rebalance timeout of a JoinGroup request; for version 0, which has none, its session timeout."""
    timeout_ms: int = command.body.session_timeout_ms if command.version == 0 else command.body.rebalance_timeout_ms
    return timeout_ms


def _add(
    group: ClassicGroup, ticket: Ticket, command: ClientRequest, member_id: str, protocols: Protocols, now_ms: int
) -> None:
    request: JoinGroupRequest = command.body
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(command),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
    )
    group.add(member, request.protocol_type, ticket, now_ms)


def member_id_required(member_id: str, version: int) -> JoinGroupResponse:
    """Returns the MEMBER_ID_REQUIRED response; a new member has to join with the id in the response (KIP-394)."""
    return JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=member_id,
        members=(),
    )


def _rejoin(
    group: ClassicGroup, out: Outbox, ticket: Ticket, command: ClientRequest, protocols: Protocols, now_ms: int
) -> None:
    """Handles JoinGroup of an existing member. If its metadata is unchanged, repeats the last response, which it may
    have missed. With new metadata, in the join phase, or from the leader of a stable group, the request is part of a
    rebalance."""
    request: JoinGroupRequest = command.body
    group.check_member(request.member_id, request.group_instance_id)
    member = group.roster.get(request.member_id)
    assert member is not None
    # The leader of a stable group rejoins if topics have changed, for example their number of partitions.
    leads = group.state is State.STABLE and group.leader == member.member_id
    if group.state is not State.PREPARING and not leads and member.protocols == protocols:
        group.restart_session_timer(member, now_ms)
        out.reply(ticket, group.join_response(member))
        return
    group.await_join(out, _updated(member, command, protocols), ticket)
    group.rebalance(out, now_ms)


def _updated(member: Member, command: ClientRequest, protocols: Protocols) -> Member:
    """Returns the member updated with the fields of its JoinGroup."""
    return replace(
        member,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(command),
        session_timeout_ms=command.body.session_timeout_ms,
        protocols=protocols,
    )


def _rejoin_static_member(
    group: ClassicGroup,
    out: Outbox,
    ticket: Ticket,
    command: ClientRequest,
    old_id: str,
    member_id: str,
    protocols: Protocols,
    now_ms: int,
) -> None:
    """Gives a restarted static member its new member id; the member keeps its assignment (KIP-345)."""
    old = group.roster.get(old_id)
    assert old is not None
    member = replace(_updated(old, command, protocols), member_id=member_id)
    roster = Roster(group.roster)
    roster.replace(old_id, member)
    if group.state is not State.STABLE or roster.choose_protocol() != group.protocol:
        group.replace_static_member(out, old_id, member, now_ms)
        group.await_join(out, member, ticket)
        group.rebalance(out, now_ms)
        return
    leader = member_id if group.leader == old_id else group.leader
    assignments = {entry.member_id: entry.assignment for entry in roster}
    out.records.append(group.record(now_ms, roster=roster, leader=leader, assignments=assignments))
    group.uncommitted_members = {member_id: member}
    group.restart_session_timer(member, now_ms)
    if command.version >= 9:
        # It may lead, but must not assign again: the group has an assignment (KIP-814).
        leads = leader == member_id
        out.reply(ticket, group.join_response(member, leader=leader, roster=roster, skip_assignment=leads))
    else:
        # A client without skip_assignment must not take itself for the leader.
        out.reply(ticket, group.join_response(member, leader=group.leader))

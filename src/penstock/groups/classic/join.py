"""JoinGroup: who is let in, under which member id, and whether that takes a rebalance."""

from collections.abc import Callable
from dataclasses import replace

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import Ask, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.members import Member, Protocols, Roster, protocols_of
from penstock.groups.classic.membership import State
from penstock.groups.errors import GroupMaxSizeReached, InconsistentGroupProtocol
from penstock.groups.outbox import Outbox
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NewMemberId = Callable[[str], str]
"""Makes a member id that nobody has had, out of a name."""


def join(group: ClassicGroup, out: Outbox, ticket: Ticket, ask: Ask, new_member_id: NewMemberId, now_ms: int) -> None:
    """Let a member in, or say why not."""
    request: JoinGroupRequest = ask.body
    protocols = protocols_of(request.protocols)
    if not _has_room(group, request):
        _turn_away(group, out, ticket, request.member_id, now_ms)
        return
    _check_protocols(group, request.protocol_type, protocols)
    if request.member_id in group.pending and request.group_instance_id is None:
        _add(group, ticket, ask, request.member_id, protocols, now_ms)
    elif request.member_id:
        _join_again(group, out, ticket, ask, protocols, now_ms)
        return
    elif request.group_instance_id is not None:
        old_id = group.roster.by_instance.get(request.group_instance_id)
        member_id = new_member_id(request.group_instance_id)
        if old_id is not None:
            _return(group, out, ticket, ask, old_id, member_id, protocols, now_ms)
            return
        _add(group, ticket, ask, member_id, protocols, now_ms)
    else:
        member_id = new_member_id(ask.client_id)
        if ask.version >= 4:
            # A client that never hears of its id would come back as another member, again and again (KIP-394).
            group.expect(member_id, request.session_timeout_ms, now_ms)
            out.reply(ticket, member_id_required(member_id, ask.version))
            return
        _add(group, ticket, ask, member_id, protocols, now_ms)
    group.rebalance(out, now_ms)


# -- who may


def _has_room(group: ClassicGroup, request: JoinGroupRequest) -> bool:
    """Whether group.max.size allows it. While a group is put together, only those who have joined again count."""
    size_max = group.settings.size_max
    if group.is_empty:
        return True
    if not request.member_id and request.group_instance_id in group.roster.by_instance:
        return True  # whoever returns takes its own place
    if group.state is State.PREPARING:
        return request.member_id in group.joins or len(group.joins) < size_max
    return request.member_id in group.roster or len(group.roster) < size_max


def _turn_away(group: ClassicGroup, out: Outbox, ticket: Ticket, member_id: str, now_ms: int) -> None:
    """The group is full. A member of a group that has become too large leaves it by this."""
    out.refuse(ticket, GroupMaxSizeReached(f"group {group.group_id!r} has {group.settings.size_max} members already"))
    if member_id in group.pending:
        group.forget(member_id)
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
        raise InconsistentGroupProtocol(f"group {group.group_id!r} is of type {group.protocol_type!r}")
    if not group.roster.can_work_by(name for name, _ in protocols):
        raise InconsistentGroupProtocol(f"group {group.group_id!r} has members that know none of these protocols")


# -- how


def rebalance_timeout_ms(ask: Ask) -> int:
    """How long a member takes to join again. JoinGroup v0 has one timeout for this and its session."""
    timeout_ms: int = ask.body.session_timeout_ms if ask.version == 0 else ask.body.rebalance_timeout_ms
    return timeout_ms


def _add(group: ClassicGroup, ticket: Ticket, ask: Ask, member_id: str, protocols: Protocols, now_ms: int) -> None:
    request: JoinGroupRequest = ask.body
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(ask),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
    )
    group.add(member, request.protocol_type, ticket, now_ms)


def member_id_required(member_id: str, version: int) -> JoinGroupResponse:
    """A new member is told its id, and has to join with it (KIP-394)."""
    return JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED,
        protocol_name=None if version >= 7 else "",
        leader="",
        member_id=member_id,
        members=(),
    )


def _join_again(
    group: ClassicGroup, out: Outbox, ticket: Ticket, ask: Ask, protocols: Protocols, now_ms: int
) -> None:
    """A member that is known joins: because all have to, because it has changed, or because an answer was lost."""
    request: JoinGroupRequest = ask.body
    group.check_member(request.member_id, request.group_instance_id)
    member = group.roster.get(request.member_id)
    assert member is not None
    # The leader of a stable group joins if what is to be shared out has changed, say the number of partitions.
    leads = group.state is State.STABLE and group.leader == member.member_id
    if group.state is not State.PREPARING and not leads and member.protocols == protocols:
        group.heard(member, now_ms)
        out.reply(ticket, group.joined(member))
        return
    group.await_join(out, _changed(member, ask, protocols), ticket)
    group.rebalance(out, now_ms)


def _changed(member: Member, ask: Ask, protocols: Protocols) -> Member:
    """What a member says of itself now."""
    return replace(
        member,
        client_id=ask.client_id,
        client_host=ask.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(ask),
        session_timeout_ms=ask.body.session_timeout_ms,
        protocols=protocols,
    )


def _return(
    group: ClassicGroup,
    out: Outbox,
    ticket: Ticket,
    ask: Ask,
    old_id: str,
    member_id: str,
    protocols: Protocols,
    now_ms: int,
) -> None:
    """A static member is back and has forgotten its member id: it gets a new one, and keeps its share (KIP-345)."""
    old = group.roster.get(old_id)
    assert old is not None
    member = replace(_changed(old, ask, protocols), member_id=member_id)
    roster = Roster(group.roster)
    roster.replace(old_id, member)
    if group.state is not State.STABLE or roster.choose_protocol() != group.protocol:
        group.take_over(out, old_id, member, now_ms)
        group.await_join(out, member, ticket)
        group.rebalance(out, now_ms)
        return
    leader = member_id if group.leader == old_id else group.leader
    assignments = {entry.member_id: entry.assignment for entry in roster}
    out.records.append(group.record(now_ms, roster=roster, leader=leader, assignments=assignments))
    group.arriving = {member_id: member}
    group.heard(member, now_ms)
    if ask.version >= 9:
        # It may lead, and is told not to share out what is shared out already (KIP-814).
        out.reply(ticket, group.joined(member, leader=leader, roster=roster, skip_assignment=leader == member_id))
    else:
        # Whoever knows no skip_assignment must not think that it leads.
        out.reply(ticket, group.joined(member, leader=group.leader))

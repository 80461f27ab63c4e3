"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic members in a consumer group.

The generation of a classic member is its member epoch (KIP-848). There is no leader, and requests are answered at
once: JoinGroup reports the partitions that the member still owns and replies with its next assignment. The Heartbeat
response tells the member to rejoin when its assignment changes or when partitions assigned to it are released.
"""

from collections.abc import Collection, Sequence
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ClientRequest, Decision, StateRecord, Ticket
from penstock.foundation.errors import MalformedRequest, PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.classic import sync_heartbeat_leave
from penstock.groups.classic.consumer_protocol import partitions_in, read_subscription, write_assignment
from penstock.groups.classic.join import member_id_required, rebalance_timeout_ms
from penstock.groups.classic.members import Protocols, protocols_of
from penstock.groups.classic.subscribed_topics import CONSUMER
from penstock.groups.consumer.group import CLASSIC_JOIN, CLASSIC_SYNC, ConsumerGroup
from penstock.groups.consumer.members import Member
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.errors import IllegalGeneration, InconsistentGroupProtocol, RebalanceInProgress, UnknownMemberId
from penstock.groups.migration.downgrade import may_become_classic
from penstock.groups.modern.members import AWAY, JOINING, MemberState
from penstock.groups.modern.state import Draft
from penstock.groups.outbox import Outbox
from penstock.groups.records import ClassicMemberMetadata, ClassicProtocol
from penstock.wire.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

ID_REQUIRED_SINCE: Final = 4
"""First JoinGroup version in which a new member must join with a member id assigned by the broker (KIP-394)."""

# -- joining


def join(group: ConsumerGroup, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles JoinGroup of a classic member, which joins or rejoins the consumer group."""
    request: JoinGroupRequest = command.body
    protocols = protocols_of(request.protocols)
    known = group.static_member(request.group_instance_id) or group.state.members.get(request.member_id)
    if known is None:
        group.check_size(request.member_id)
    _check_protocols(group, request.protocol_type, protocols)
    out = Outbox()
    if not request.member_id and request.group_instance_id is None and command.version >= ID_REQUIRED_SINCE:
        out.reply(ticket, member_id_required(group.new_member_id(command.client_id), command.version))
        return out.decision()
    subscription = _subscription(protocols)
    draft = group.draft()
    owned = partitions_in(subscription.owned_partitions, group.image)
    before = _get_or_create_member(group, draft, request, command.client_id, owned)
    member = _updated(before, command, protocols, subscription)
    if known is not None and known.classic is None:
        out.records += _downgrade(group, draft, before, member, now_ms)
        if out.records:
            out.reply(ticket, _join_response(member, group.state.target_epoch))
            return out.decision()
    after = group.advance(draft, before, member, owned, now_ms)
    group.cancel_timer(CLASSIC_JOIN, after.member_id)
    group.set_timer(CLASSIC_SYNC, now_ms + after.rebalance_timeout_ms, after.member_id)
    out.records += draft.records
    out.reply(ticket, _join_response(after, after.epoch))
    return out.decision()


def _check_protocols(group: ConsumerGroup, protocol_type: str, protocols: Protocols) -> None:
    """Raises InconsistentGroupProtocol unless one of `protocols` is supported by all classic members of the group."""
    if protocol_type != CONSUMER:
        raise InconsistentGroupProtocol(f"group {group.group_id!r} has type {CONSUMER!r}, not {protocol_type!r}")
    others = [member.classic for member in group.state.members.values() if member.classic is not None]
    shared = [name for name, _ in protocols if all(name in _names(classic.supported_protocols) for classic in others)]
    if not shared:
        raise InconsistentGroupProtocol(f"members of group {group.group_id!r} support none of these protocols")


def _names(protocols: Sequence[ClassicProtocol]) -> set[str]:
    return {protocol.name for protocol in protocols}


def _subscription(protocols: Protocols) -> ConsumerProtocolSubscription:
    """Returns the decoded subscription in the member's first protocol; it is the same in all its protocols."""
    name, metadata = protocols[0]
    try:
        return read_subscription(metadata)
    except MalformedRequest as error:
        raise InconsistentGroupProtocol(f"protocol {name!r} has invalid consumer metadata: {error}") from error


def _get_or_create_member(
    group: ConsumerGroup,
    draft: Draft[ConsumerState],
    request: JoinGroupRequest,
    client_id: str,
    owned: Collection[TopicIdPartition],
) -> Member:
    """Returns the member that sent the JoinGroup, or a new member if it joins for the first time."""
    member_id, instance_id = request.member_id, request.group_instance_id
    if instance_id is None:
        member_id = member_id or group.new_member_id(client_id)
        known = group.state.members.get(member_id)
        if known is None and owned:
            # It was removed, and its partitions may have other owners. Kafka accepts it, which allows two owners.
            raise UnknownMemberId(f"{member_id!r} is no longer a member of group {group.group_id!r}; join again")
        member = known or Member(member_id=member_id)
    elif member_id:
        member = group.check_static_member(member_id, instance_id)
    else:
        # A new member takes over the instance id, even if the previous member is alive (KIP-345).
        member_id = group.new_member_id(instance_id)
        old = group.static_member(instance_id)
        member = Member(member_id=member_id) if old is None else group.replace_static_member(draft, old, member_id)
    return member._replace(epoch=JOINING, previous_epoch=JOINING) if member.epoch == AWAY else member


def _updated(
    member: Member, command: ClientRequest, protocols: Protocols, subscription: ConsumerProtocolSubscription
) -> Member:
    """Returns the member updated with the metadata of its JoinGroup."""
    request: JoinGroupRequest = command.body
    return member._replace(
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(command),
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        ),
    )


def _join_response(member: Member, generation: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=0,
        generation_id=generation,
        protocol_type=CONSUMER,
        protocol_name=_protocol(member).name,
        leader="",
        member_id=member.member_id,
        members=(),
    )


def _protocol(member: Member) -> ClassicProtocol:
    """Returns the protocol that a classic member prefers. Members need not agree: the broker assigns partitions."""
    assert member.classic is not None
    return member.classic.supported_protocols[0]


def _downgrade(
    group: ConsumerGroup, draft: Draft[ConsumerState], before: Member, member: Member, now_ms: int
) -> tuple[StateRecord, ...]:
    """Returns the records that downgrade the group to a classic group; none if a member is not classic.

    The classic group need not rebalance if the member's subscription is unchanged and the others are reconciled.
    """
    state = draft.state.copy()
    state.apply(*group.records.member_metadata(member))
    if not may_become_classic(state, group.settings):
        return ()
    is_stable = (
        (member.topic_names, member.topic_regex) == (before.topic_names, before.topic_regex)
        and state.epoch == state.target_epoch
        and all(
            other.is_reconciled_to(state.epoch)
            for other in state.members.values()
            if other.member_id != member.member_id
        )
    )
    return group.downgrade(state, is_stable=is_stable, now_ms=now_ms)


# -- sync and heartbeat


def sync(group: ConsumerGroup, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles SyncGroup: replies with the current assignment of a classic member."""
    request: SyncGroupRequest = command.body
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    sync_heartbeat_leave.check_protocol(group.group_id, (CONSUMER, _protocol(member).name), request, command.version)
    out = Outbox()
    if member.epoch < group.state.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _request_rejoin(group, out, ticket, member, now_ms)
        return out.decision()
    # A member that has to revoke partitions has joined already; this response tells it what it keeps.
    group.cancel_timer(CLASSIC_SYNC, member.member_id)
    group.schedule_session_timeout(member, now_ms)
    response = SyncGroupResponse(
        error_code=0,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, group.image, _protocol(member).metadata),
    )
    out.reply(ticket, response)
    return out.decision()


def heartbeat(group: ConsumerGroup, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles Heartbeat: restarts the session timeout and replies whether the classic member has to rejoin."""
    request: HeartbeatRequest = command.body
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    group.schedule_session_timeout(member, now_ms)
    out = Outbox()
    if _must_rejoin(group.state, member):
        _request_rejoin(group, out, ticket, member, now_ms)
    else:
        out.reply(ticket, HeartbeatResponse(error_code=0))
    return out.decision()


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Returns the classic member with these ids. Raises UnknownMemberId, FencedInstanceId or IllegalGeneration."""
    member = group.member(member_id) if instance_id is None else group.check_static_member(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"member {member_id!r} does not use the classic protocol")
    if generation != member.epoch:
        raise IllegalGeneration(f"member {member_id!r} is in generation {member.epoch}, not {generation}")
    return member


def _must_rejoin(state: ConsumerState, member: Member) -> bool:
    if member.epoch < state.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    target = state.targets.get(member.member_id, frozenset())
    return not any(tp in state.owners and tp not in member.assigned for tp in target)


def _request_rejoin(group: ConsumerGroup, out: Outbox, ticket: Ticket, member: Member, now_ms: int) -> None:
    """Replies RebalanceInProgress; the member's rebalance timeout starts with the first such reply."""
    group.set_timer(CLASSIC_JOIN, now_ms + member.rebalance_timeout_ms, member.member_id, if_absent=True)
    out.reply(ticket, RebalanceInProgress(f"group {group.group_id!r} is rebalancing; join again"))


# -- leaving


def leave(group: ConsumerGroup, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles LeaveGroup: removes members of either protocol that leave or that an administrator removes."""
    request: LeaveGroupRequest = command.body
    leaving = sync_heartbeat_leave.leaving_members(request, command.version)
    removed: dict[str, Member] = {}
    codes = []
    for identity in leaving:
        try:
            member = _leaving_member(group, identity)
        except PenstockError as error:
            codes.append(error.code)
        else:
            removed[member.member_id] = member
            codes.append(ErrorCode.NONE)
    out = Outbox()
    if removed:
        out.records += group.remove_members(removed.values(), now_ms)
    out.reply(ticket, sync_heartbeat_leave.leave_response(leaving, codes, command.version))
    return out.decision()


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    static_member = group.static_member(identity.group_instance_id)
    if static_member is not None and not identity.member_id:
        return static_member  # administrators identify static members by instance id alone (KIP-345)
    return group.check_static_member(identity.member_id, identity.group_instance_id)

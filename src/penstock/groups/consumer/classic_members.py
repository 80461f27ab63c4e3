"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup where the broker shares out.

Their generation is their member epoch (KIP-848). Nobody leads and nobody waits: who joins says what it still owns,
goes one step towards its target like any other member, and is told at once. It learns from heartbeats that it has to
join again: because there is a new target, to say that it gave something up, or to get what others gave up.
"""

from collections.abc import Collection, Sequence
from typing import Final

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import Ask, Decision, StateRecord, Ticket
from penstock.foundation.errors import MalformedRequest, PenstockError
from penstock.groups.changes import Draft
from penstock.groups.classic import sync_heartbeat_leave
from penstock.groups.classic.consumer_protocol import places_in, read_subscription, write_assignment
from penstock.groups.classic.join import member_id_required, rebalance_timeout_ms
from penstock.groups.classic.members import Protocols, protocols_of
from penstock.groups.classic.subscribed_topics import CONSUMER
from penstock.groups.consumer import records as consumer_records
from penstock.groups.consumer.group import CLASSIC_JOIN, CLASSIC_SYNC, ConsumerGroup
from penstock.groups.consumer.members import AWAY, JOINING, Member, MemberState, TopicIdPartition
from penstock.groups.consumer.state import GroupState
from penstock.groups.errors import IllegalGeneration, InconsistentGroupProtocol, RebalanceInProgress, UnknownMemberId
from penstock.groups.migration.downgrade import may_become_classic
from penstock.groups.outbox import Outbox
from penstock.groups.records import ClassicMemberMetadata, ClassicProtocol
from penstock.wire.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

ID_REQUIRED_SINCE: Final = 4
"""The version of JoinGroup from which a member has to know its id before it is one (KIP-394)."""

# -- joining


def join(group: ConsumerGroup, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """A member of the classic protocol joins, or joins again."""
    request: JoinGroupRequest = ask.body
    protocols = protocols_of(request.protocols)
    known = group.holder(request.group_instance_id) or group.state.members.get(request.member_id)
    group.check_room(request.member_id, known)
    _check_protocols(group, request.protocol_type, protocols)
    out = Outbox()
    if not request.member_id and request.group_instance_id is None and ask.version >= ID_REQUIRED_SINCE:
        out.reply(ticket, member_id_required(group.new_member_id(ask.client_id), ask.version))
        return out.decision()
    subscription = _subscription(protocols)
    draft = Draft(group.state, consumer_records.to_record)
    owned = places_in(subscription.owned_partitions, group.image)
    before = _admit(group, draft, request, ask.client_id, owned)
    member = _updated(before, ask, protocols, subscription)
    if known is not None and known.classic is None:
        out.records += _downgrade(group, draft, before, member, now_ms)
        if out.records:
            out.reply(ticket, _joined(member, group.state.target_epoch))
            return out.decision()
    after = group.advance(draft, before, member, owned, now_ms)
    group.cancel_timer(CLASSIC_JOIN, after.member_id)
    group.set_timer(CLASSIC_SYNC, after.member_id, now_ms + after.rebalance_timeout_ms)
    out.records += draft.records
    out.reply(ticket, _joined(after, after.epoch))
    return out.decision()


def _check_protocols(group: ConsumerGroup, protocol_type: str, protocols: Protocols) -> None:
    """All classic members must share a protocol: if only they are left, they have to agree on one."""
    if protocol_type != CONSUMER:
        raise InconsistentGroupProtocol(f"group {group.group_id!r} is of type {CONSUMER!r}, not {protocol_type!r}")
    others = [member.classic for member in group.state.members.values() if member.classic is not None]
    shared = [name for name, _ in protocols if all(name in _names(classic.supported_protocols) for classic in others)]
    if not shared:
        raise InconsistentGroupProtocol(f"group {group.group_id!r} has members that know none of these protocols")


def _names(protocols: Sequence[ClassicProtocol]) -> set[str]:
    return {protocol.name for protocol in protocols}


def _subscription(protocols: Protocols) -> ConsumerProtocolSubscription:
    """What a member says under the protocol that it likes best; it says the same under all."""
    name, metadata = protocols[0]
    try:
        return read_subscription(metadata)
    except MalformedRequest as error:
        raise InconsistentGroupProtocol(f"the metadata of protocol {name!r} is not a consumer's: {error}") from error


def _admit(
    group: ConsumerGroup,
    draft: Draft[GroupState],
    request: JoinGroupRequest,
    client_id: str,
    owned: Collection[TopicIdPartition],
) -> Member:
    """Who speaks: a member, or one that becomes a member now."""
    member_id, instance_id = request.member_id, request.group_instance_id
    if instance_id is None:
        member_id = member_id or group.new_member_id(client_id)
        known = group.state.members.get(member_id)
        if known is None and owned:
            # It was removed and does not know it: what it owns may be with others now. Kafka takes it in again, and
            # there are two owners until it syncs.
            raise UnknownMemberId(f"{member_id!r} is no longer a member of group {group.group_id!r}; join again")
        member = known or Member(member_id=member_id)
    elif member_id:
        member = group.check_holder(member_id, instance_id)
    else:
        # Whoever comes under an instance id takes it over, be its holder alive or not (KIP-345).
        member_id = group.new_member_id(instance_id)
        holder = group.holder(instance_id)
        member = group.succeed(draft, holder, member_id) if holder is not None else Member(member_id=member_id)
    return member._replace(epoch=JOINING, previous_epoch=JOINING) if member.epoch == AWAY else member


def _updated(member: Member, ask: Ask, protocols: Protocols, subscription: ConsumerProtocolSubscription) -> Member:
    """The member with what it says about itself."""
    request: JoinGroupRequest = ask.body
    return member._replace(
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=ask.client_id,
        client_host=ask.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(ask),
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        ),
    )


def _joined(member: Member, generation: int) -> JoinGroupResponse:
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
    """What it likes best, and is told that it works by: nobody but the broker shares out, so others may differ."""
    assert member.classic is not None
    return member.classic.supported_protocols[0]


def _downgrade(
    group: ConsumerGroup, draft: Draft[GroupState], before: Member, member: Member, now_ms: int
) -> tuple[StateRecord, ...]:
    """What makes the group a classic one if this member, which spoke the newer protocol until now, was the last that
    did; nothing if it was not. If all have what they are to have, and it takes over what it had, that is all.
    """
    state = draft.state.copy()
    state.apply(*consumer_records.member_metadata(group.group_id, member))
    if not may_become_classic(state, group.settings):
        return ()
    is_settled = (
        (member.topic_names, member.topic_regex) == (before.topic_names, before.topic_regex)
        and state.epoch == state.target_epoch
        and all(
            other.is_reconciled_to(state.epoch)
            for other in state.members.values()
            if other.member_id != member.member_id
        )
    )
    return group.downgrade(state, is_settled=is_settled, now_ms=now_ms)


# -- staying


def sync(group: ConsumerGroup, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """Tell a classic member what is assigned to it."""
    request: SyncGroupRequest = ask.body
    member = _speaker(group, request.member_id, request.group_instance_id, request.generation_id)
    sync_heartbeat_leave.check_protocol(group.group_id, (CONSUMER, _protocol(member).name), request, ask.version)
    out = Outbox()
    if member.epoch < group.state.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _have_join(group, out, ticket, member, now_ms)
        return out.decision()
    # Whoever has to give something up has joined already, and hears by this what it may keep.
    group.cancel_timer(CLASSIC_SYNC, member.member_id)
    group.expect(member, now_ms)
    response = SyncGroupResponse(
        error_code=0,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, group.image, _protocol(member).metadata),
    )
    out.reply(ticket, response)
    return out.decision()


def heartbeat(group: ConsumerGroup, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """A classic member is alive, and hears whether it has to join again."""
    request: HeartbeatRequest = ask.body
    member = _speaker(group, request.member_id, request.group_instance_id, request.generation_id)
    group.expect(member, now_ms)
    out = Outbox()
    if _has_to_join(group.state, member):
        _have_join(group, out, ticket, member, now_ms)
    else:
        out.reply(ticket, HeartbeatResponse(error_code=0))
    return out.decision()


def _speaker(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Raises UnknownMemberId, FencedInstanceId, IllegalGeneration."""
    member = group.member(member_id) if instance_id is None else group.check_holder(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"member {member_id!r} does not speak the classic protocol")
    if generation != member.epoch:
        raise IllegalGeneration(f"member {member_id!r} is in generation {member.epoch}, not {generation}")
    return member


def _has_to_join(state: GroupState, member: Member) -> bool:
    if member.epoch < state.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    target = state.targets.get(member.member_id, frozenset())
    return not any(place in state.owners and place not in member.assigned for place in target)


def _have_join(group: ConsumerGroup, out: Outbox, ticket: Ticket, member: Member, now_ms: int) -> None:
    """The member is told to join again, and has its rebalance timeout from the first time that it is told."""
    group.set_timer(CLASSIC_JOIN, member.member_id, now_ms + member.rebalance_timeout_ms, if_absent=True)
    out.refuse(ticket, RebalanceInProgress(f"group {group.group_id!r} is being rebalanced; join again"))


# -- going


def leave(group: ConsumerGroup, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """Removes members that leave, or that an administrator removes, of either protocol."""
    request: LeaveGroupRequest = ask.body
    leaving = sync_heartbeat_leave.leaving_in(request, ask.version)
    gone: dict[str, Member] = {}
    codes = []
    for identity in leaving:
        try:
            member = _leaver(group, identity)
        except PenstockError as error:
            codes.append(error.code)
        else:
            gone[member.member_id] = member
            codes.append(ErrorCode.NONE)
    out = Outbox()
    if gone:
        out.records += group.without(gone.values(), now_ms)
    out.reply(ticket, sync_heartbeat_leave.left(leaving, codes, ask.version))
    return out.decision()


def _leaver(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    holder = group.holder(identity.group_instance_id)
    if holder is not None and not identity.member_id:
        return holder  # an administrator names static members by their group.instance.id alone (KIP-345)
    return group.check_holder(identity.member_id, identity.group_instance_id)

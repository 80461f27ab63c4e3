"""A consumer group becomes a classic one again when all who are left speak the classic protocol (KIP-848)."""

from collections.abc import Collection

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import StateRecord
from penstock.foundation.errors import MalformedRequest
from penstock.groups.classic.consumer_protocol import write_assignment
from penstock.groups.classic.members import Member as ClassicMember
from penstock.groups.classic.members import Roster
from penstock.groups.classic.subscribed_topics import CONSUMER
from penstock.groups.consumer.members import Member, TopicIdPartition
from penstock.groups.consumer.state import GroupState
from penstock.groups.records import GROUP_METADATA, GROUP_METADATA_VERSION, GroupKey, GroupMetadataValue
from penstock.groups.settings import GroupSettings
from penstock.wire.state import state_record


def may_become_classic(state: GroupState, settings: GroupSettings) -> bool:
    """Whether a group with these members is to be a classic one."""
    members = state.members.values()
    return (
        settings.may_downgrade
        and 0 < len(members) <= settings.size_max
        and all(member.classic is not None for member in members)
        and _has_shared_protocol(_roster(state))
    )


def classic_record(
    group_id: str, state: GroupState, image: ClusterImage, *, is_settled: bool, now_ms: int
) -> StateRecord:
    """The record of the classic group that a consumer group becomes.

    If the group is settled, its members have what they were to have. If not, they have what they hold, and the group
    is to be rebalanced: it has no leader then, so that a coordinator that only reads this knows it too. Partitions
    that a member still holds must be in the record: if they were not, a member of the newer protocol that joins
    before the others have joined again would get them at once.
    """
    roster = _roster(state)
    protocol = roster.choose_protocol()
    members = []
    for member in roster:
        places: Collection[TopicIdPartition] = state.targets.get(member.member_id, frozenset())
        if not is_settled:
            before = state.members[member.member_id]
            places = (*before.assigned, *before.revoking)
        try:
            assignment = write_assignment(places, image, member.metadata(protocol))
        except MalformedRequest:
            assignment = b""  # read back from a log that another broker has written: it joins again
        members.append(member.to_record(protocol, assignment))
    value = GroupMetadataValue(
        protocol_type=CONSUMER,
        # No member was ever told a later epoch. Kafka goes on with the group's, and whoever has not yet heard that it
        # moved on could not commit what it has any more.
        generation=state.target_epoch,
        protocol=protocol,
        leader=roster.ids[0] if is_settled else None,
        current_state_timestamp=now_ms,
        members=members,
    )
    return state_record(GROUP_METADATA, GroupKey(group=group_id), value, GROUP_METADATA_VERSION)


def _roster(state: GroupState) -> Roster:
    return Roster(_converted(member) for member in state.members.values())


def _has_shared_protocol(roster: Roster) -> bool:
    """There is one, unless another broker has written what was read back."""
    return roster.can_work_by({name for member in roster for name, _ in member.protocols})


def _converted(member: Member) -> ClassicMember:
    classic = member.classic
    assert classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
    )

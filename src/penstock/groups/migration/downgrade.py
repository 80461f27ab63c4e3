"""Downgrade of a consumer group to a classic group when only members of the classic protocol are left (KIP-848)."""

from collections.abc import Collection

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import StateRecord
from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.classic.consumer_protocol import write_assignment
from penstock.groups.classic.members import Member as ClassicMember
from penstock.groups.classic.members import Roster
from penstock.groups.classic.subscribed_topics import CONSUMER
from penstock.groups.consumer.members import Member
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.records import GROUP_METADATA, GROUP_METADATA_VERSION, GroupKey, GroupMetadataValue
from penstock.groups.settings import GroupSettings
from penstock.wire.state import state_record


def may_become_classic(state: ConsumerState, settings: GroupSettings) -> bool:
    """Returns whether to downgrade a consumer group to a classic group: all members use the classic protocol and
    support a common assignor, and the migration policy and group.max.size allow it."""
    members = state.members.values()
    return (
        settings.may_downgrade
        and 0 < len(members) <= settings.size_max
        and all(member.classic is not None for member in members)
        and _has_shared_protocol(_classic_roster(state))
    )


def classic_record(
    group_id: str, state: ConsumerState, image: ClusterImage, *, is_stable: bool, now_ms: int
) -> StateRecord:
    """Returns the record of the classic group that replaces a consumer group.

    If `is_stable`, members get their target assignment. Otherwise they get the partitions they hold, and the record
    names no leader: a coordinator that replays such a record starts a rebalance. The record must contain all
    partitions that members hold. Otherwise, if a member of the consumer protocol joined before the others have
    rejoined, it would be assigned partitions that another member still reads.
    """
    roster = _classic_roster(state)
    protocol = roster.choose_protocol()
    members = []
    for member in roster:
        tps: Collection[TopicIdPartition] = state.targets.get(member.member_id, frozenset())
        if not is_stable:
            before = state.members[member.member_id]
            tps = (*before.assigned, *before.revoking)
        try:
            assignment = write_assignment(tps, image, member.metadata(protocol))
        except MalformedRequest:
            assignment = b""  # replayed from another broker's record: the member has to rejoin
        members.append(member.to_record(protocol, assignment))
    value = GroupMetadataValue(
        protocol_type=CONSUMER,
        # The latest epoch that a member can have. Kafka continues with the group epoch, and then members that have
        # not rejoined yet cannot commit.
        generation=state.target_epoch,
        protocol=protocol,
        leader=roster.ids[0] if is_stable else None,
        current_state_timestamp=now_ms,
        members=members,
    )
    return state_record(GROUP_METADATA, GroupKey(group=group_id), value, GROUP_METADATA_VERSION)


def _classic_roster(state: ConsumerState) -> Roster:
    return Roster(_convert_member(member) for member in state.members.values())


def _has_shared_protocol(roster: Roster) -> bool:
    """Whether there is a protocol that all members support."""
    return roster.supports_any({name for member in roster for name, _ in member.protocols})


def _convert_member(member: Member) -> ClassicMember:
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

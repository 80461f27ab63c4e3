"""Upgrade of a classic group to a consumer group when the first consumer-protocol member joins (KIP-848).

The members of the classic group keep their partitions and become classic members of the consumer group
(consumer/classic_members.py). The first group epoch is the last generation. The reverse is downgrade.py.
"""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import ClientRequest, Decision, Ticket
from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.classic.consumer_protocol import partitions_in, read_assignment, read_subscription
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.members import Member as ClassicMember
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.members import Held, Member
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import BECAME_CONSUMER
from penstock.groups.modern.records import Change
from penstock.groups.outbox import Outbox
from penstock.groups.records import ClassicMemberMetadata, ClassicProtocol
from penstock.groups.settings import CONSUMER
from penstock.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

COMMON_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Client-side assignors that do not use the user data in assignments. So a group with one of them can be upgraded
even if its assignments contain user data: librdkafka copies it there from the subscriptions (cooperative-sticky)."""


def upgrade(
    group: ClassicGroup, consumer_group: ConsumerGroup, ticket: Ticket, command: ClientRequest, now_ms: int
) -> Decision:
    """Upgrades a classic group to `consumer_group` and handles the heartbeat of the joining consumer-protocol member.

    Raises GroupIdNotFound if the group cannot be upgraded, and the errors of the heartbeat.
    """
    _check_upgradable(group)
    changes = _changes(group, consumer_group)
    for change in changes:
        consumer_group.state.apply(*change)  # not visible before the same records are persisted
    decision = consumer_group.heartbeat(ticket, command, now_ms)
    out = Outbox()
    group.refuse_waiting_requests(out, now_ms)
    group.set_timer(BECAME_CONSUMER, now_ms)
    return Decision(
        persist=(*group.tombstones(), *map(consumer_group.records.to_record, changes), *decision.persist),
        replies=(*decision.replies, *out.decision().replies),
    )


def _check_upgradable(group: ClassicGroup) -> None:
    settings = group.settings
    size_max = settings.by_kind[CONSUMER].size_max
    why = ""
    if not settings.may_upgrade:
        why = "group.consumer.migration.policy does not allow it"
    elif not group.is_of_consumers:
        why = f"its protocol type is {group.protocol_type!r}, not 'consumer'"
    elif len(group.roster) > size_max:
        why = f"it has {len(group.roster)} members, and group.consumer.max.size is {size_max}"
    if why:
        raise GroupIdNotFound(f"classic group {group.group_id!r} cannot become a consumer group: {why}")


def _changes(group: ClassicGroup, consumer_group: ConsumerGroup) -> list[Change]:
    """Returns the changes that create the consumer group, in which each member keeps the partitions it may hold."""
    records, epoch = consumer_group.records, group.generation
    held = _owned_partitions(group, consumer_group.image)
    members = [_convert_member(group, member, held[member.member_id]) for member in group.roster]
    return [
        *(records.member_metadata(member) for member in members),
        # Hash 0 forces a new target, even if the joining member only replaces a static one: the last assignment of a
        # classic group that was rebalancing may be incomplete.
        records.group_epoch(epoch, 0),
        *(records.target(member.member_id, member.assigned) for member in members),
        records.target_epoch(epoch, 0),
        *(records.current_assignment(member) for member in members),
    ]


def _owned_partitions(group: ClassicGroup, image: ClusterImage) -> dict[str, set[TopicIdPartition]]:
    """Returns the partitions that each member may hold: those last assigned to it, and those it owned when it joined.

    A cooperative member keeps partitions that it owned until it has received an assignment without them.
    """
    held: dict[str, set[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    for member in group.roster:
        # A faulty assignor may have assigned a partition twice; here it has one owner.
        assigned = partitions_in(_assignment(group, member).assigned_partitions, image) - taken
        taken |= assigned
        held[member.member_id] = set(assigned)
    for member in group.roster:
        owned = partitions_in(_subscription(group, member).owned_partitions, image) - taken
        taken |= owned
        held[member.member_id] |= owned
    return held


def _assignment(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolAssignment:
    try:
        assignment = read_assignment(member.assignment)
    except MalformedRequest as error:
        raise _unreadable(group, member) from error
    if assignment.user_data and group.protocol not in COMMON_ASSIGNORS:
        raise GroupIdNotFound(
            f"classic group {group.group_id!r} cannot become a consumer group: the user data that its "
            f"assignor stores in the assignment of {member.member_id!r} would be lost"
        )
    return assignment


def _subscription(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    # During the first rebalance no protocol is chosen yet; the subscription is the same in all of them.
    metadata = member.metadata(group.protocol) or next((metadata for _, metadata in member.protocols), b"")
    try:
        return read_subscription(metadata)
    except MalformedRequest as error:
        raise _unreadable(group, member) from error


def _unreadable(group: ClassicGroup, member: ClassicMember) -> GroupIdNotFound:
    return GroupIdNotFound(
        f"classic group {group.group_id!r} cannot become a consumer group: "
        f"the metadata of member {member.member_id!r} cannot be decoded"
    )


def _convert_member(group: ClassicGroup, member: ClassicMember, tps: Iterable[TopicIdPartition]) -> Member:
    subscription = _subscription(group, member)
    held: Held = dict.fromkeys(sorted(tps), group.generation)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in member.protocols],
        ),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=held,
    )

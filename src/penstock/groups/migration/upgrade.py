"""A classic group that has members becomes a consumer group when a first one of the newer protocol joins (KIP-848).

Its members keep their partitions and become classic members of the consumer group (consumer/classic_members.py). The
group epoch continues from the generation. The reverse is downgrade.py.
"""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import Ask, Decision, Ticket
from penstock.foundation.errors import MalformedRequest
from penstock.groups.changes import Change
from penstock.groups.classic.consumer_protocol import places_in, read_assignment, read_subscription
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.members import Member as ClassicMember
from penstock.groups.consumer import records as consumer_records
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.members import Held, Member, TopicIdPartition
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import BECAME_CONSUMER
from penstock.groups.outbox import Outbox
from penstock.groups.records import ClassicMemberMetadata, ClassicProtocol
from penstock.wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

COMMON_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors that do not read the user data of an assignment. librdkafka, as the leader of a group with
cooperative-sticky, copies the user data of each subscription into the assignment."""


def upgrade(group: ClassicGroup, made: ConsumerGroup, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """A member of the newer protocol joins a classic group: `made` is what the group becomes by it.

    Raises GroupIdNotFound, as for any group of the other kind, if it cannot; and whatever the heartbeat raises.
    """
    _check(group)
    changes = _changes(group, made.image)
    for change in changes:
        made.state.apply(*change)  # nobody knows of it yet: it counts once the same records are persisted
    decision = made.heartbeat(ticket, ask, now_ms)
    out = Outbox()
    group.dismiss(out, now_ms)
    group.set_timer(BECAME_CONSUMER, now_ms)
    return Decision(
        persist=(*group.tombstones(), *map(consumer_records.to_record, changes), *decision.persist),
        replies=(*decision.replies, *out.decision().replies),
    )


def _check(group: ClassicGroup) -> None:
    settings = group.settings
    why = ""
    if not settings.may_upgrade:
        why = "group.consumer.migration.policy does not allow it"
    elif not group.is_of_consumers:
        why = f"its members are no consumers, but of type {group.protocol_type!r}"
    elif len(group.roster) > settings.consumer_size_max:
        why = f"it has {len(group.roster)} members, and group.consumer.max.size is {settings.consumer_size_max}"
    if why:
        raise GroupIdNotFound(f"classic group {group.group_id!r} cannot become a consumer group: {why}")


def _changes(group: ClassicGroup, image: ClusterImage) -> list[Change]:
    """The records of a consumer group whose members have, and are to have, what the classic group gave them last."""
    group_id, epoch = group.group_id, group.generation
    held = _held(group, image)
    members = [_converted(group, member, held[member.member_id]) for member in group.roster]
    return [
        *(consumer_records.member_metadata(group_id, member) for member in members),
        # As if no topic had been there: all is shared out anew, even if the one that joins only takes the place of a
        # static member. What the classic group gave out last need not have been all, if it was being rebalanced.
        consumer_records.group_epoch(group_id, epoch, 0),
        *(consumer_records.target(group_id, member.member_id, member.assigned) for member in members),
        consumer_records.target_epoch(group_id, epoch, 0),
        *(consumer_records.current_assignment(group_id, member) for member in members),
    ]


def _held(group: ClassicGroup, image: ClusterImage) -> dict[str, set[TopicIdPartition]]:
    """The partitions that each member may hold: what it was assigned last, and what it owned when it joined.

    A cooperative member keeps the latter until it has fetched an assignment without it.
    """
    held: dict[str, set[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    for member in group.roster:
        # An assignor that gave a partition to two is wrong already; here it has one owner.
        assigned = places_in(_assignment(group, member).assigned_partitions, image) - taken
        taken |= assigned
        held[member.member_id] = set(assigned)
    for member in group.roster:
        owned = places_in(_subscription(group, member).owned_partitions, image) - taken
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
            f"classic group {group.group_id!r} cannot become a consumer group: its own assignor says more to "
            f"{member.member_id!r} than which partitions it has, and that would be lost"
        )
    return assignment


def _subscription(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    # While a group is put together for the first time, no protocol is chosen; all of them say the same.
    metadata = member.metadata(group.protocol) or next((metadata for _, metadata in member.protocols), b"")
    try:
        return read_subscription(metadata)
    except MalformedRequest as error:
        raise _unreadable(group, member) from error


def _unreadable(group: ClassicGroup, member: ClassicMember) -> GroupIdNotFound:
    return GroupIdNotFound(
        f"classic group {group.group_id!r} cannot become a consumer group: "
        f"what {member.member_id!r} says cannot be read"
    )


def _converted(group: ClassicGroup, member: ClassicMember, places: Iterable[TopicIdPartition]) -> Member:
    subscription = _subscription(group, member)
    held: Held = dict.fromkeys(sorted(places), group.generation)
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

"""ConsumerGroupHeartbeat at the coordinator: finds, creates or upgrades the consumer group (KIP-848)."""

from typing import Protocol

from penstock.foundation.decision import ClientRequest, Decision, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.members import JOINING
from penstock.groups.consumer.requests import check_heartbeat
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import CoordinatorView
from penstock.groups.migration import upgrade
from penstock.groups.share.group import ShareGroup
from penstock.groups.streams.group import StreamsGroup
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class GroupCreator(CoordinatorView, Protocol):
    """Protocol class: a group coordinator that can create consumer groups."""

    def new_consumer(self, group_id: str) -> ConsumerGroup: ...

    def add_uncommitted(self, group: ConsumerGroup) -> None: ...


def heartbeat(coordinator: GroupCreator, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles ConsumerGroupHeartbeat; creates the group if it does not exist, or upgrades a classic group."""
    request: ConsumerGroupHeartbeatRequest = command.body
    check_heartbeat(command, coordinator.settings.consumer_assignors)
    group = coordinator.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return group.heartbeat(ticket, command, now_ms)
    if request.member_epoch != JOINING or isinstance(group, ShareGroup | StreamsGroup):
        why = "does not exist" if group is None else "is not a consumer group"
        raise GroupIdNotFound(f"group {request.group_id!r} {why}")
    created = coordinator.new_consumer(request.group_id)
    if isinstance(group, ClassicGroup) and group.roster:
        decision = upgrade.upgrade(group, created, ticket, command, now_ms)
    else:
        decision = created.heartbeat(ticket, command, now_ms)
        before = group.tombstones() if group else ()
        decision = decision._replace(persist=(*before, *decision.persist))
    coordinator.add_uncommitted(created)
    return decision

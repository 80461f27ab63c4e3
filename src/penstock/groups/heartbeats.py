"""Passes each heartbeat to its consumer, share or streams group, after creating or upgrading the group if needed."""

from typing import Any

from penstock.foundation.decision import ClientRequest, Decision, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.requests import check_heartbeat as check_consumer_heartbeat
from penstock.groups.group import CoordinatorView
from penstock.groups.migration.upgrade import upgrade
from penstock.groups.modern.group import ModernGroup
from penstock.groups.modern.members import JOINING
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.requests import check_heartbeat as check_share_heartbeat
from penstock.groups.streams.group import StreamsGroup
from penstock.groups.streams.requests import check_heartbeat as check_streams_heartbeat


def consumer_heartbeat(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles ConsumerGroupHeartbeat; creates the group if it does not exist, or upgrades a classic group."""
    request = command.body
    check_consumer_heartbeat(command, coordinator.settings.consumer_assignors)
    known = coordinator.groups.get(request.group_id)
    if isinstance(known, ClassicGroup) and known.roster and request.member_epoch == JOINING:
        created = coordinator.new_group(ConsumerGroup, request.group_id)
        return upgrade(known, created, ticket, command, now_ms)
    may_create = known is None or isinstance(known, ClassicGroup)
    return _heartbeat(coordinator, ConsumerGroup, may_create, ticket, command, now_ms)


def share_heartbeat(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles ShareGroupHeartbeat; creates the group if it does not exist."""
    check_share_heartbeat(command.body, coordinator.image)
    may_create = command.body.group_id not in coordinator.groups
    return _heartbeat(coordinator, ShareGroup, may_create, ticket, command, now_ms)


def streams_heartbeat(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles StreamsGroupHeartbeat. An empty classic group becomes a streams group and keeps its offsets, so that
    a stopped application can migrate from the classic protocol."""
    check_streams_heartbeat(command.body)
    known = coordinator.groups.get(command.body.group_id)
    may_create = known is None or (isinstance(known, ClassicGroup) and known.is_empty)
    return _heartbeat(coordinator, StreamsGroup, may_create, ticket, command, now_ms)


def _heartbeat(
    coordinator: CoordinatorView,
    of: type[ModernGroup[Any, Any, Any]],
    may_create: bool,
    ticket: Ticket,
    command: ClientRequest,
    now_ms: int,
) -> Decision:
    """Passes a heartbeat to its group. If `may_create`, the heartbeat of a joining member first creates a group of
    class `of`, which replaces an empty classic group."""
    group_id = command.body.group_id
    if command.body.member_epoch != JOINING or not may_create:
        return of.find(coordinator, group_id).heartbeat(ticket, command, now_ms)
    known = coordinator.groups.get(group_id)
    decision = coordinator.new_group(of, group_id).heartbeat(ticket, command, now_ms)
    before = known.tombstones() if known is not None else ()
    return decision._replace(persist=(*before, *decision.persist))

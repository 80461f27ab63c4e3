"""Share group requests and commands at the coordinator: heartbeat, describe, delete, delivery state (KIP-932)."""

from typing import Any, Protocol

from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable
from penstock.groups.changes import Draft
from penstock.groups.commands import AddDeliveryState, DeleteDeliveryState, DeliveryStateDeleted, FindDeliveryState
from penstock.groups.consumer.members import JOINING
from penstock.groups.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from penstock.groups.group import CoordinatorView
from penstock.groups.share import records as share_records
from penstock.groups.share.description import refused_share_group
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.records import DeliveryTopics
from penstock.groups.share.requests import check_heartbeat
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class GroupCreator(CoordinatorView, Protocol):
    """Protocol class: a group coordinator that can create share groups."""

    def new_share(self, group_id: str) -> ShareGroup: ...

    def add_uncommitted(self, group: ShareGroup) -> None: ...


def heartbeat(coordinator: GroupCreator, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
    """Handles ShareGroupHeartbeat; creates the share group if it does not exist."""
    request: ShareGroupHeartbeatRequest = command.body
    check_heartbeat(request, coordinator.image)
    if request.member_epoch != JOINING or request.group_id in coordinator.groups:
        return _find_group(coordinator, request.group_id).heartbeat(ticket, command, now_ms)
    group = coordinator.new_share(request.group_id)
    coordinator.add_uncommitted(group)
    return group.heartbeat(ticket, command, now_ms)


def describe(coordinator: CoordinatorView, ticket: Ticket, command: ClientRequest) -> Decision:
    """Handles ShareGroupDescribe; a group of another kind is reported as not found."""
    request: ShareGroupDescribeRequest = command.body
    groups = []
    for group_id in request.group_ids:
        try:
            groups.append(_find_group(coordinator, group_id).describe())
        except GroupIdNotFound as error:
            groups.append(refused_share_group(group_id, error))
    return _reply(ticket, ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups))


def delete(coordinator: CoordinatorView, ticket: Ticket, group_id: str, now_ms: int) -> Decision:
    """Handles DeleteGroups for one share group: deletes its delivery state first, then the group."""
    group = _find_group(coordinator, group_id)
    result = DeletableGroupResult(group_id=group_id, error_code=0)
    response = DeleteGroupsResponse(throttle_time_ms=0, results=(result,))
    topic_ids = group.removal.topic_ids
    if topic_ids:
        group.schedule_removal_retry(now_ms)
        return group.removal.begin(ticket, topic_ids, response, ends_group=True)
    if not group.is_empty:
        raise NonEmptyGroup(f"share group {group_id!r} has members; stop them first")
    return Decision(persist=group.tombstones(), replies=(Reply(ticket, response),))


def decide(coordinator: GroupCreator, ticket: Ticket, command: Any, now_ms: int) -> Decision:
    """Handles commands that find, add or delete the delivery state of a share group."""
    match command:
        case FindDeliveryState():
            known = _find_group(coordinator, command.group_id).state.delivery_topics.topics
            return _reply(ticket, {topic_id: name for topic_id, (name, _) in known.items()})
        case AddDeliveryState():
            return _add_delivery_state(coordinator, ticket, command)
        case DeleteDeliveryState():
            group = _find_group(coordinator, command.group_id)
            going = command.topic_ids & group.removal.topic_ids
            if not going:
                return _reply(ticket, None)
            group.schedule_removal_retry(now_ms)
            return group.removal.begin(ticket, going, None)
        case DeliveryStateDeleted():
            return _complete_deletion(coordinator, command)
    raise TypeError(f"{command!r} is not a command of the group coordinator")


def _add_delivery_state(coordinator: GroupCreator, ticket: Ticket, command: AddDeliveryState) -> Decision:
    if not command.group_id:
        raise InvalidGroupId("the group id is empty")
    if command.group_id in coordinator.groups:
        group = _find_group(coordinator, command.group_id)
    else:
        group = coordinator.new_share(command.group_id)
        coordinator.add_uncommitted(group)
    if not group.is_empty:
        raise NonEmptyGroup(f"share group {command.group_id!r} has members; stop them first")
    known, topics = group.state.delivery_topics, coordinator.image.topics
    if known.deleting.keys() & command.topics.keys():
        raise CoordinatorNotAvailable(f"delivery state of {command.group_id!r} is being deleted; try again")
    added = {
        topic_id: (name, len(topics[topic_id].partitions))
        for topic_id, name in command.topics.items()
        if topic_id in topics
    }
    draft = Draft(group.state, share_records.to_record)
    if not draft.state.epoch:
        draft.put(share_records.group_epoch(command.group_id, 1, 0))
    if any(known.topics.get(topic_id) != entry for topic_id, entry in added.items()):
        wider = DeliveryTopics({**known.topics, **added}, known.deleting)
        draft.put(share_records.delivery_topics(command.group_id, wider))
    return Decision(persist=draft.records, replies=(Reply(ticket, None),))


def _complete_deletion(coordinator: CoordinatorView, command: DeliveryStateDeleted) -> Decision:
    group = coordinator.groups.get(command.group_id)
    if not isinstance(group, ShareGroup):
        return NOTHING
    persist, replies, ends = group.removal.complete(command.topic_ids)
    return Decision(persist=group.tombstones() if ends else persist, replies=tuple(replies))


def _find_group(coordinator: CoordinatorView, group_id: str) -> ShareGroup:
    """Returns the share group. Raises GroupIdNotFound if there is none, or the group is of another kind."""
    group = coordinator.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        why = "does not exist" if group is None else "is not a share group"
        raise GroupIdNotFound(f"group {group_id!r} {why}")
    return group


def _reply(ticket: Ticket, value: Any) -> Decision:
    return Decision(replies=(Reply(ticket, value),))

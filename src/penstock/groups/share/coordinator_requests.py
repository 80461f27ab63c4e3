"""Requests to the coordinator about share groups: delete a group; find, add and delete delivery state."""

from typing import Any

from penstock.foundation.decision import NOTHING, Decision, Reply, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable
from penstock.groups.commands import AddDeliveryState, DeleteDeliveryState, DeliveryStateDeleted, FindDeliveryState
from penstock.groups.errors import InvalidGroupId, NonEmptyGroup
from penstock.groups.group import CoordinatorView
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.records import DeliveryTopics
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse


def delete(coordinator: CoordinatorView, ticket: Ticket, group_id: str, now_ms: int) -> Decision:
    """Handles DeleteGroups for one share group: its delivery state is deleted first, then the group."""
    group = ShareGroup.find(coordinator, group_id)
    result = DeletableGroupResult(group_id=group_id, error_code=0)
    response = DeleteGroupsResponse(throttle_time_ms=0, results=(result,))
    topic_ids = group.removal.topic_ids
    if topic_ids:
        group.schedule_removal_retry(now_ms)
        return group.removal.begin(ticket, topic_ids, response, ends_group=True)
    if not group.is_empty:
        raise NonEmptyGroup(f"share group {group_id!r} has members; stop them first")
    return Decision(persist=group.tombstones(), replies=(Reply(ticket, response),))


def decide(coordinator: CoordinatorView, ticket: Ticket, command: Any, now_ms: int) -> Decision:
    """Handles the commands that find, add or delete the delivery state of a share group."""
    match command:
        case FindDeliveryState():
            known = ShareGroup.find(coordinator, command.group_id).state.delivery_topics.topics
            return _reply(ticket, {topic_id: name for topic_id, (name, _) in known.items()})
        case AddDeliveryState():
            return _add_delivery_state(coordinator, ticket, command)
        case DeleteDeliveryState():
            group = ShareGroup.find(coordinator, command.group_id)
            going = command.topic_ids & group.removal.topic_ids
            if not going:
                return _reply(ticket, None)
            group.schedule_removal_retry(now_ms)
            return group.removal.begin(ticket, going, None)
        case DeliveryStateDeleted():
            return _complete_deletion(coordinator, command)
    raise TypeError(f"{command!r} is not a command of the group coordinator")


def _add_delivery_state(coordinator: CoordinatorView, ticket: Ticket, command: AddDeliveryState) -> Decision:
    if not command.group_id:
        raise InvalidGroupId("the group id is empty")
    if command.group_id in coordinator.groups:
        group = ShareGroup.find(coordinator, command.group_id)
    else:
        group = coordinator.new_group(ShareGroup, command.group_id)
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
    draft = group.draft()
    if not draft.state.epoch:
        draft.put(group.records.group_epoch(1, 0))
    if any(known.topics.get(topic_id) != entry for topic_id, entry in added.items()):
        wider = DeliveryTopics({**known.topics, **added}, known.deleting)
        draft.put(group.records.delivery_topics(wider))
    return Decision(persist=draft.records, replies=(Reply(ticket, None),))


def _complete_deletion(coordinator: CoordinatorView, command: DeliveryStateDeleted) -> Decision:
    group = coordinator.groups.get(command.group_id)
    if not isinstance(group, ShareGroup):
        return NOTHING
    persist, replies, ends = group.removal.complete(command.topic_ids)
    return Decision(persist=group.tombstones() if ends else persist, replies=tuple(replies))


def _reply(ticket: Ticket, value: Any) -> Decision:
    return Decision(replies=(Reply(ticket, value),))

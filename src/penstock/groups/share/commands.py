"""Share groups at their coordinator: found, made, described and deleted (KIP-932)."""

from typing import Any, Protocol

from penstock.foundation.decision import NOTHING, Ask, Decision, Reply, Ticket
from penstock.foundation.errors import CoordinatorNotAvailable
from penstock.groups.changes import Draft
from penstock.groups.commands import DeliveryDropped, DropDelivery, FindDelivery, NoteDelivery
from penstock.groups.consumer.members import JOINING
from penstock.groups.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from penstock.groups.group import Holder
from penstock.groups.share import records as share_records
from penstock.groups.share.description import refused_share_group
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.records import Delivering
from penstock.groups.share.requests import check_heartbeat
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


class Maker(Holder, Protocol):
    """A coordinator, which also makes groups."""

    def new_share(self, group_id: str) -> ShareGroup: ...

    def draft(self, group: ShareGroup) -> None: ...


def heartbeat(held: Maker, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """ShareGroupHeartbeat."""
    request: ShareGroupHeartbeatRequest = ask.body
    check_heartbeat(request, held.image)
    if request.member_epoch != JOINING or request.group_id in held.groups:
        return _found(held, request.group_id).heartbeat(ticket, ask, now_ms)
    group = held.new_share(request.group_id)
    held.draft(group)
    return group.heartbeat(ticket, ask, now_ms)


def describe(held: Holder, ticket: Ticket, ask: Ask) -> Decision:
    """ShareGroupDescribe."""
    request: ShareGroupDescribeRequest = ask.body
    groups = []
    for group_id in request.group_ids:
        try:
            groups.append(_found(held, group_id).describe())
        except GroupIdNotFound as error:
            groups.append(refused_share_group(group_id, error))
    return _replying(ticket, ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups))


def delete(held: Holder, ticket: Ticket, group_id: str, now_ms: int) -> Decision:
    """DeleteGroups of one share group: its delivery state goes first."""
    group = _found(held, group_id)
    result = DeletableGroupResult(group_id=group_id, error_code=0)
    response = DeleteGroupsResponse(throttle_time_ms=0, results=(result,))
    topic_ids = group.dropping.topic_ids
    if topic_ids:
        group.expect_dropped(now_ms)
        return group.dropping.begin(ticket, topic_ids, response, ends_group=True)
    if not group.is_empty:
        raise NonEmptyGroup(f"share group {group_id!r} has members; stop them first")
    return Decision(persist=group.tombstones(), replies=(Reply(ticket, response),))


def decide(held: Maker, ticket: Ticket, command: Any, now_ms: int) -> Decision:
    """What is asked about the delivery state of a group."""
    match command:
        case FindDelivery():
            known = _found(held, command.group_id).state.delivering.topics
            return _replying(ticket, {topic_id: name for topic_id, (name, _) in known.items()})
        case NoteDelivery():
            return _note(held, ticket, command)
        case DropDelivery():
            group = _found(held, command.group_id)
            going = command.topic_ids & group.dropping.topic_ids
            if not going:
                return _replying(ticket, None)
            group.expect_dropped(now_ms)
            return group.dropping.begin(ticket, going, None)
        case DeliveryDropped():
            return _dropped(held, command)
    raise TypeError(f"{command!r} is no command of groups")


def _note(held: Maker, ticket: Ticket, command: NoteDelivery) -> Decision:
    if not command.group_id:
        raise InvalidGroupId("a group needs an id; it is empty")
    if command.group_id in held.groups:
        group = _found(held, command.group_id)
    else:
        group = held.new_share(command.group_id)
        held.draft(group)
    if not group.is_empty:
        raise NonEmptyGroup(f"share group {command.group_id!r} has members; stop them first")
    known, topics = group.state.delivering, held.image.topics
    if known.deleting.keys() & command.topics.keys():
        raise CoordinatorNotAvailable(f"share group {command.group_id!r} is being removed from there; try again")
    added = {
        topic_id: (name, len(topics[topic_id].partitions))
        for topic_id, name in command.topics.items()
        if topic_id in topics
    }
    draft = Draft(group.state, share_records.to_record)
    if not draft.state.epoch:
        draft.put(share_records.group_epoch(command.group_id, 1, 0))
    if any(known.topics.get(topic_id) != entry for topic_id, entry in added.items()):
        wider = Delivering({**known.topics, **added}, known.deleting)
        draft.put(share_records.delivering(command.group_id, wider))
    return Decision(persist=draft.records, replies=(Reply(ticket, None),))


def _dropped(held: Holder, command: DeliveryDropped) -> Decision:
    group = held.groups.get(command.group_id)
    if not isinstance(group, ShareGroup):
        return NOTHING
    persist, replies, ends = group.dropping.ended(command.topic_ids)
    return Decision(persist=group.tombstones() if ends else persist, replies=tuple(replies))


def _found(held: Holder, group_id: str) -> ShareGroup:
    """Raises GroupIdNotFound, also for a group of another kind: a name has one."""
    group = held.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        why = "there is none" if group is None else "it is a group of another kind"
        raise GroupIdNotFound(f"share group {group_id!r}: {why}")
    return group


def _replying(ticket: Ticket, value: Any) -> Decision:
    return Decision(replies=(Reply(ticket, value),))

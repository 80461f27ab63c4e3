"""Consumer groups at their coordinator: found and created, also from classic groups (KIP-848)."""

from typing import Protocol

from penstock.foundation.decision import Ask, Decision, Ticket
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.members import JOINING
from penstock.groups.consumer.requests import check_heartbeat
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import Holder
from penstock.groups.migration import upgrade
from penstock.groups.share.group import ShareGroup
from penstock.groups.streams.group import StreamsGroup
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Maker(Holder, Protocol):
    """A coordinator, which also creates groups."""

    def new_consumer(self, group_id: str) -> ConsumerGroup: ...

    def draft(self, group: ConsumerGroup) -> None: ...


def heartbeat(held: Maker, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
    """ConsumerGroupHeartbeat. A classic group becomes a consumer group: at once if it is empty, and else if its
    members can go on in it."""
    request: ConsumerGroupHeartbeatRequest = ask.body
    check_heartbeat(ask, held.settings.consumer_assignors)
    group = held.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return group.heartbeat(ticket, ask, now_ms)
    if request.member_epoch != JOINING or isinstance(group, ShareGroup | StreamsGroup):
        why = "there is none" if group is None else "it is a group of another kind"
        raise GroupIdNotFound(f"consumer group {request.group_id!r}: {why}")
    draft = held.new_consumer(request.group_id)
    if isinstance(group, ClassicGroup) and group.roster:
        decision = upgrade.upgrade(group, draft, ticket, ask, now_ms)
    else:
        decision = draft.heartbeat(ticket, ask, now_ms)
        before = group.tombstones() if group else ()
        decision = decision._replace(persist=(*before, *decision.persist))
    held.draft(draft)
    return decision

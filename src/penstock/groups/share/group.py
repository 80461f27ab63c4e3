"""A share group (KIP-932): the broker assigns each partition to one or more members, which acquire messages. Pure.

Part of the coordinator's state machine: see foundation/decision.py. The leader of a partition decides which member
acquires a message: see queues/. The group only records the topics in which it has delivery state, so that the state
is deleted with the group: see delivery_state_removal.py.
"""

from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, Ticket
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps
from penstock.groups.commands import AddCompanionLogs
from penstock.groups.consumer.subscriptions import metadata_hash
from penstock.groups.errors import GroupIdNotFound
from penstock.groups.group import RETRY_MS, CoordinatorView
from penstock.groups.modern.group import ModernGroup
from penstock.groups.modern.members import JOINING
from penstock.groups.modern.state import Draft
from penstock.groups.modern.target_assignment import Assignments
from penstock.groups.settings import SHARE
from penstock.groups.share.assignor import SIMPLE
from penstock.groups.share.delivery_state_removal import DELIVERY_REMOVAL, DeliveryStateRemoval
from penstock.groups.share.description import describe_member
from penstock.groups.share.members import NOTHING_ASSIGNED, ShareMember
from penstock.groups.share.records import NO_TOPICS, DeliveryTopics, ShareRecords
from penstock.groups.share.requests import assignment_of, check_epoch, updated
from penstock.groups.share.state import ShareState
from penstock.groups.share.target import compute_assignments, deliverable, is_large
from penstock.wire.messages.share_group_describe import DescribedGroup, ShareGroupDescribeResponse
from penstock.wire.messages.share_group_describe import Member as DescribedMember
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class ShareGroup(ModernGroup[ShareMember, TopicIdPartition, ShareState]):
    """One share group, with the topics in which it has delivery state (which messages are in flight or
    acknowledged)."""

    kind = SHARE
    title = "share group"
    state_class = ShareState
    heartbeat_response = ShareGroupHeartbeatResponse
    describe_response = ShareGroupDescribeResponse
    described_group = DescribedGroup
    records: ShareRecords

    def __init__(self, group_id: str, coordinator: CoordinatorView) -> None:
        super().__init__(group_id, coordinator)
        self.removal: Final = DeliveryStateRemoval(group_id, self.state, self.records)
        self._resolved_with: tuple[ClusterImage | None, DeliveryTopics, int] = (None, NO_TOPICS, 0)
        """The metadata image and the topics with delivery state when subscriptions were last resolved to topics,
        and the resulting group epoch."""

    # -- queries

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises GroupIdNotFound: share groups have no committed offsets."""
        raise GroupIdNotFound(f"{self.group_id!r} is a share group, not a consumer group")

    def _description(self) -> dict[str, Any]:
        return {"assignor_name": SIMPLE}

    def _describe_member(self, member: ShareMember) -> DescribedMember:
        return describe_member(member, self.image)

    # -- heartbeats

    def _join_or_update(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: ShareGroupHeartbeatRequest = command.body
        draft = self.draft()
        before = self._known_or_new_member(request.member_id, request.member_epoch)
        check_epoch(before, request.member_epoch)
        member = updated(before, command)
        self._update_member(draft, before, member, now_ms)
        after = self._reconciled(draft.state, member)
        if after.epoch != member.epoch or after.assigned != member.assigned:
            draft.put(self.records.current_assignment(after))
        self.schedule_session_timeout(after, now_ms)
        sends_assignment = request.member_epoch == JOINING or after.assigned != before.assigned
        effects = self._missing_companions(draft.state)
        is_pending = bool(effects) or draft.state.epoch > draft.state.target_epoch
        response = ShareGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(is_pending),
            assignment=assignment_of(after) if sends_assignment else None,
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),), effects=effects)

    def _update_member(self, draft: Draft[ShareState], before: ShareMember, member: ShareMember, now_ms: int) -> None:
        """Adds the member's metadata to `draft`, and a new group epoch and target assignment if needed."""
        is_new = member.member_id not in draft.state.members
        if is_new or member is not before:
            draft.put(self.records.member_metadata(member))
        bump_epoch = is_new or member.topic_names != before.topic_names
        if bump_epoch or not self._is_resolved():
            self._resolve_topics(draft, bump_epoch, now_ms)
        self._update_target(draft, now_ms)

    def _reconciled(self, state: ShareState, member: ShareMember) -> ShareMember:
        """Returns the member with its whole target assignment: it need not wait until others revoke partitions."""
        if member.is_reconciled_to(state.target_epoch):
            return member
        return member._replace(
            epoch=state.target_epoch,
            previous_epoch=member.epoch,
            assigned=state.targets.get(member.member_id, NOTHING_ASSIGNED),
        )

    def _missing_companions(self, state: ShareState) -> tuple[AddCompanionLogs, ...]:
        """Returns an effect to create the companion logs (second logs, for delivery state) that partitions of
        subscribed topics lack; () if none is missing."""
        topics = (self.image.by_name.get(name) for name in state.subscribed())
        lacking = frozenset(
            topic.topic_id for topic in topics if topic is not None and not topic.companion and not topic.is_internal
        )
        return (AddCompanionLogs(topic_ids=lacking),) if lacking else ()

    # -- timers

    def loaded(self, now_ms: int) -> None:
        super().loaded(now_ms)
        if self.state.delivery_topics.deleting:
            self.set_timer(DELIVERY_REMOVAL, now_ms)

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        if kind != DELIVERY_REMOVAL:
            return super().on_timer(kind, member_id, now_ms)
        decision = self.removal.retry()
        if decision.effects:
            self.schedule_removal_retry(now_ms)
        return decision

    def schedule_removal_retry(self, now_ms: int) -> None:
        """Sets the timer that retries the deletion of delivery state."""
        self.set_timer(DELIVERY_REMOVAL, now_ms + RETRY_MS)

    # -- topics and target assignment

    def topics_changed(self, now_ms: int) -> Decision:
        """Resolves subscriptions with the new metadata image. Members learn of changes in their next heartbeats."""
        if self._is_resolved():
            return NOTHING
        draft = self.draft()
        known = draft.state.delivery_topics
        left = DeliveryTopics(
            {topic_id: entry for topic_id, entry in known.topics.items() if topic_id in self.image.topics},
            {topic_id: name for topic_id, name in known.deleting.items() if topic_id in self.image.topics},
        )
        if left != known:  # deleted topics have no delivery state
            draft.put(self.records.delivery_topics(left))
        if draft.state.members:
            self._resolve_topics(draft, False, now_ms)
        return Decision(persist=draft.records)

    def _is_resolved(self) -> bool:
        image, delivery_topics, epoch = self._resolved_with
        return image is self.image and delivery_topics is self.state.delivery_topics and epoch <= self.state.epoch

    def _resolve_topics(self, draft: Draft[ShareState], bump_epoch: bool, now_ms: int) -> None:
        found = deliverable(draft.state, self.image, draft.state.subscribed())
        digest = metadata_hash((topic.name for topic in found), self.image)
        if bump_epoch or digest != draft.state.metadata_hash:
            draft.put(self.records.group_epoch(draft.state.epoch + 1, digest))
        self._resolved_with = (self.image, self.state.delivery_topics, draft.state.epoch)

    def _next_epoch(self, draft: Draft[ShareState]) -> None:
        draft.put(self.records.group_epoch(draft.state.epoch + 1, draft.state.metadata_hash))
        self._resolved_with = (self.image, self.state.delivery_topics, draft.state.epoch)

    def _update_target(self, draft: Draft[ShareState], now_ms: int) -> None:
        if draft.state.epoch > draft.state.target_epoch:
            self._add_delivery_topics(draft)
        super()._update_target(draft, now_ms)

    def _compute_target(self, now_ms: int) -> Decision:
        decision = super()._compute_target(now_ms)
        if not decision.persist:
            return decision
        draft = self.draft()
        self._add_delivery_topics(draft)  # topics may have changed since the last heartbeat
        return decision._replace(persist=(*draft.records, *decision.persist))

    def _add_delivery_topics(self, draft: Draft[ShareState]) -> None:
        """Adds to the group's record in `draft` all topics that can be assigned: from now on the group possibly has
        delivery state there, which must be deleted with the group."""
        known = draft.state.delivery_topics
        topics = deliverable(draft.state, self.image, draft.state.subscribed())
        counts = {topic.topic_id: (topic.name, len(topic.partitions)) for topic in topics}
        if any(known.topics.get(topic_id) != entry for topic_id, entry in counts.items()):
            wider = DeliveryTopics({**known.topics, **counts}, known.deleting)
            draft.put(self.records.delivery_topics(wider))

    def _is_large(self, state: ShareState) -> bool:
        return is_large(state, self.image)

    def _assign(self, state: ShareState) -> Steps[Assignments[TopicIdPartition]]:
        return compute_assignments(state, self.image)

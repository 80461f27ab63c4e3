"""A share group (KIP-932): the broker assigns partitions to several members each; members acquire messages. Pure.

Part of the coordinator's state machine: see foundation/decision.py. The leader of a partition decides which member
acquires a message: see queues/. The group only records the topics in which it has delivery state, so that the state
is deleted with the group: see delivery_state_removal.py.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, StateRecord, Ticket
from penstock.foundation.steps import run_steps
from penstock.foundation.timers import Timers
from penstock.groups.changes import Draft
from penstock.groups.commands import AddCompanionLogs
from penstock.groups.consumer.group import RETRY_MS, SESSION
from penstock.groups.consumer.members import JOINING
from penstock.groups.consumer.subscriptions import metadata_hash
from penstock.groups.errors import GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId
from penstock.groups.group import log_expired
from penstock.groups.records import SHARE_GROUP_MEMBER_METADATA
from penstock.groups.settings import GroupSettings
from penstock.groups.share import records as share_records
from penstock.groups.share.delivery_state_removal import DELIVERY_REMOVAL, DeliveryStateRemoval
from penstock.groups.share.description import describe_share_group
from penstock.groups.share.members import NOTHING_ASSIGNED, ShareMember
from penstock.groups.share.records import DeliveryTopics
from penstock.groups.share.requests import assignment_of, check_epoch, updated
from penstock.groups.share.state import ShareState
from penstock.groups.share.target import compute_assignments, deliverable, is_large
from penstock.groups.target_assignment import SHORT_INTERVAL_MS, TargetComputation
from penstock.wire.messages.share_group_describe import DescribedGroup
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

TARGET: Final = "target"
"""Kind of the timer that continues the computation of a target assignment."""


class ShareGroup:
    """One share group: its members, their target assignment, and the topics with delivery state."""

    def __init__(
        self,
        *,
        group_id: str,
        settings: Callable[[], GroupSettings],
        image: Callable[[], ClusterImage],
        timers: Timers[tuple[str, str, str]],
    ) -> None:
        self.group_id: Final = group_id
        self._settings = settings
        self._image = image
        self._timers = timers
        self.state: Final = ShareState()
        """The persisted state of the group. Read-only: only `apply_record` changes it."""
        self.removal: Final = DeliveryStateRemoval(group_id, self.state)
        self._target_computation = TargetComputation(
            group_id, share_records, lambda: compute_assignments(self.state.copy(), self.image)
        )
        self._resolved_with: tuple[ClusterImage | None, DeliveryTopics, int] = (None, share_records.NO_TOPICS, 0)
        """The metadata image and delivery topics of the last `_resolve_topics`, and the resulting group epoch."""

    # -- queries

    @property
    def settings(self) -> GroupSettings:
        return self._settings()

    @property
    def image(self) -> ClusterImage:
        return self._image()

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def state_name(self) -> str:
        """The group state as Kafka's tools show it: Empty, Stable or Dead."""
        return self.state.name

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.state.subscribed()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises GroupIdNotFound: share groups have no committed offsets."""
        raise GroupIdNotFound(f"{self.group_id!r} is a share group, not a consumer group")

    def describe(self) -> DescribedGroup:
        return describe_share_group(self.group_id, self.state, self.image)

    def member(self, member_id: str) -> ShareMember:
        """Returns a member by id. Raises UnknownMemberId."""
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is not a member of share group {self.group_id!r}; it has to join")
        return member

    # -- records

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record that was persisted or is replayed; nothing else changes the group's state."""
        self.state.apply(kind, key, value)
        if kind == SHARE_GROUP_MEMBER_METADATA and value is None:
            self._timers.cancel(self._timer(SESSION, key.member_id))

    def loaded(self, now_ms: int) -> None:
        """Restarts the session timeout of all members after all records were replayed."""
        for member_id in self.state.members:
            self._schedule_session_timeout(member_id, now_ms)
        if self.state.delivery_topics.deleting:
            self._timers.set(self._timer(DELIVERY_REMOVAL, ""), now_ms)

    def tombstones(self) -> tuple[StateRecord, ...]:
        changes = share_records.member_tombstones(self.group_id, self.state.members)
        changes += share_records.group_tombstones(self.group_id)
        return tuple(map(share_records.to_record, changes))

    # -- heartbeats

    def heartbeat(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        """Handles a heartbeat that `check_heartbeat` has accepted: a member joins, stays or leaves.

        Raises Kafka's errors; in that case nothing has changed.
        """
        if command.body.member_epoch < JOINING:
            return self._leave(ticket, command.body, now_ms)
        return self._join_or_update(ticket, command, now_ms)

    def _join_or_update(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: ShareGroupHeartbeatRequest = command.body
        draft = Draft(self.state, share_records.to_record)
        before = self._get_or_create_member(request)
        member = updated(before, command)
        self._update_member(draft, before, member, now_ms)
        after = self._reconciled(draft.state, member)
        if after.epoch != member.epoch or after.assigned != member.assigned:
            draft.put(share_records.current_assignment(self.group_id, after))
        self._schedule_session_timeout(after.member_id, now_ms)
        sends_assignment = request.member_epoch == JOINING or after.assigned != before.assigned
        effects = self._missing_companions(draft.state)
        interval_ms = self.settings.share_heartbeat_interval_ms
        is_pending = draft.state.epoch > draft.state.target_epoch
        response = ShareGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=min(interval_ms, SHORT_INTERVAL_MS) if effects or is_pending else interval_ms,
            assignment=assignment_of(after) if sends_assignment else None,
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),), effects=effects)

    def _get_or_create_member(self, request: ShareGroupHeartbeatRequest) -> ShareMember:
        """Returns the member that sent the heartbeat, or a new member if it joins. Raises if the sender is fenced."""
        if request.member_epoch == JOINING and request.member_id not in self.state.members:
            size_max = self.settings.share_size_max
            if len(self.state.members) >= size_max:
                raise GroupMaxSizeReached(f"group {self.group_id!r} has {size_max} members, which is its limit")
            return ShareMember(member_id=request.member_id)
        member = self.member(request.member_id)
        check_epoch(member, request.member_epoch)
        return member

    def _update_member(self, draft: Draft[ShareState], before: ShareMember, member: ShareMember, now_ms: int) -> None:
        """Puts the member's metadata into the draft; updates group epoch and target assignment if needed."""
        is_new = member.member_id not in draft.state.members
        if is_new or member is not before:
            draft.put(share_records.member_metadata(self.group_id, member))
        bump_epoch = is_new or member.topic_names != before.topic_names
        if bump_epoch or not self._is_resolved():
            self._resolve_topics(draft, bump_epoch)
        if draft.state.epoch > draft.state.target_epoch:
            self._update_target(draft, now_ms)

    def _reconciled(self, state: ShareState, member: ShareMember) -> ShareMember:
        """Returns the member with its target assignment. Shared partitions need not be revoked by others first."""
        if member.epoch == state.target_epoch:
            return member
        return member._replace(
            epoch=state.target_epoch,
            previous_epoch=member.epoch,
            assigned=state.targets.get(member.member_id, NOTHING_ASSIGNED),
        )

    def _missing_companions(self, state: ShareState) -> tuple[AddCompanionLogs, ...]:
        """Returns an effect that adds missing companion logs, which topics need before they can be assigned."""
        topics = (self.image.by_name.get(name) for name in state.subscribed())
        lacking = frozenset(
            topic.topic_id for topic in topics if topic is not None and not topic.companion and not topic.is_internal
        )
        return (AddCompanionLogs(topic_ids=lacking),) if lacking else ()

    # -- leaving

    def _leave(self, ticket: Ticket, request: ShareGroupHeartbeatRequest, now_ms: int) -> Decision:
        member = self.member(request.member_id)
        response = ShareGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return Decision(persist=self._remove_member(member), replies=(Reply(ticket=ticket, value=response),))

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """Removes a member whose session timed out, retries deletion of delivery state, or continues the target."""
        if kind == DELIVERY_REMOVAL:
            decision = self.removal.retry()
            if decision.effects:
                self.schedule_removal_retry(now_ms)
            return decision
        if kind == TARGET:
            return self._compute_target(now_ms)
        member = self.state.members.get(member_id)
        if member is None or kind != SESSION:
            return NOTHING
        log_expired(self.group_id, member_id, kind)
        self._timers.set(self._timer(SESSION, member_id), now_ms + RETRY_MS)
        return Decision(persist=self._remove_member(member))

    def _remove_member(self, member: ShareMember) -> tuple[StateRecord, ...]:
        """Returns the records that remove a member. The next heartbeat of another member updates the target."""
        draft = Draft(self.state, share_records.to_record)
        draft.put(*share_records.member_tombstones(self.group_id, (member.member_id,)))
        self._resolve_topics(draft, True)
        if not draft.state.members:
            draft.put(share_records.target_epoch(self.group_id, draft.state.epoch, 0))
        return draft.records

    # -- topics

    def topics_changed(self, now_ms: int) -> Decision:
        """Resolves subscriptions with the new metadata image. Members learn of changes in their next heartbeats."""
        if self._is_resolved():
            return NOTHING
        draft = Draft(self.state, share_records.to_record)
        known = draft.state.delivery_topics
        left = DeliveryTopics(
            {topic_id: entry for topic_id, entry in known.topics.items() if topic_id in self.image.topics},
            {topic_id: name for topic_id, name in known.deleting.items() if topic_id in self.image.topics},
        )
        if left != known:  # deleted topics have no delivery state
            draft.put(share_records.delivery_topics(self.group_id, left))
        if draft.state.members:
            self._resolve_topics(draft, False)
        return Decision(persist=draft.records)

    def _is_resolved(self) -> bool:
        """Whether subscriptions were resolved with the current metadata image and the result was persisted."""
        image, delivery_topics, epoch = self._resolved_with
        return image is self.image and delivery_topics is self.state.delivery_topics and epoch <= self.state.epoch

    def _resolve_topics(self, draft: Draft[ShareState], bump_epoch: bool) -> None:
        """Resolves subscriptions to topics; bumps the group epoch if the result differs or `bump_epoch` is set."""
        found = deliverable(draft.state, self.image, draft.state.subscribed())
        digest = metadata_hash((topic.name for topic in found), self.image)
        if bump_epoch or digest != draft.state.metadata_hash:
            draft.put(share_records.group_epoch(self.group_id, draft.state.epoch + 1, digest))
        self._resolved_with = (self.image, self.state.delivery_topics, draft.state.epoch)

    def _update_target(self, draft: Draft[ShareState], now_ms: int) -> None:
        """Computes the target assignment for the group epoch: at once, or in time slices if the group is large."""
        self._add_delivery_topics(draft)
        image, state, group_id = self.image, draft.state, self.group_id
        if not is_large(state, image):
            assignments = run_steps(compute_assignments(state, image))
            changed = [entry for entry in assignments.items() if state.targets.get(entry[0]) != entry[1]]
            draft.put(*(share_records.target(group_id, member_id, target) for member_id, target in changed))
            draft.put(share_records.target_epoch(group_id, state.epoch, now_ms))
            return
        if not state.target_epoch:  # members need an epoch above 0: a new group starts with an empty target
            draft.put(share_records.target_epoch(group_id, state.epoch, now_ms))
            draft.put(share_records.group_epoch(group_id, state.epoch + 1, state.metadata_hash))
            self._resolved_with = (image, self.state.delivery_topics, draft.state.epoch)
        if self._timer(TARGET, "") not in self._timers:
            self._timers.set(self._timer(TARGET, ""), now_ms)

    def _add_delivery_topics(self, draft: Draft[ShareState]) -> None:
        """Records in which topics, with how many partitions, the group may have delivery state from now on."""
        known = draft.state.delivery_topics
        topics = deliverable(draft.state, self.image, draft.state.subscribed())
        counts = {topic.topic_id: (topic.name, len(topic.partitions)) for topic in topics}
        if any(known.topics.get(topic_id) != entry for topic_id, entry in counts.items()):
            wider = DeliveryTopics({**known.topics, **counts}, known.deleting)
            draft.put(share_records.delivery_topics(self.group_id, wider))

    def _compute_target(self, now_ms: int) -> Decision:
        """Runs the next time slice of the target assignment's computation."""
        result = self._target_computation.run_slice(self.state, {}, now_ms)
        if result is None:
            return NOTHING
        self._timers.set(self._timer(TARGET, ""), result.next_ms)
        draft = Draft(self.state, share_records.to_record)
        if result.changes:  # topics may have changed since the last heartbeat
            self._add_delivery_topics(draft)
        draft.put(*result.changes)
        return Decision(persist=draft.records)

    # -- timers

    def _timer(self, kind: str, member_id: str) -> tuple[str, str, str]:
        return (self.group_id, kind, member_id)

    def _schedule_session_timeout(self, member_id: str, now_ms: int) -> None:
        self._timers.set(self._timer(SESSION, member_id), now_ms + self.settings.share_session_timeout_ms)

    def schedule_removal_retry(self, now_ms: int) -> None:
        """Sets the timer that retries the deletion of delivery state."""
        self._timers.set(self._timer(DELIVERY_REMOVAL, ""), now_ms + RETRY_MS)

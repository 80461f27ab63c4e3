"""A consumer group (KIP-848): heartbeats report subscriptions and owned partitions; the broker assigns. Pure.

Part of the coordinator's state machine: see foundation/decision.py. Some or all of its members may use the classic
protocol: see classic_members.py.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import InvalidRegularExpression
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.timers import Timers
from penstock.groups.changes import Draft
from penstock.groups.consumer import records as consumer_records
from penstock.groups.consumer.checks import MemberChecks
from penstock.groups.consumer.description import describe_group
from penstock.groups.consumer.members import AWAY, JOINING, NOTHING_HELD, Member
from penstock.groups.consumer.requests import assignment_of, check_epoch, is_full, owned_in, updated
from penstock.groups.consumer.state import GroupState
from penstock.groups.consumer.subscriptions import NAMES_MAX, REGEXES_MAX, Patterns, metadata_hash
from penstock.groups.consumer.target import compute_assignments, is_large, new_target, preferred_assignor, topic_ids
from penstock.groups.errors import GroupMaxSizeReached, UnreleasedInstanceId
from penstock.groups.group import BECAME_CLASSIC, BECAME_CONSUMER, log_expired
from penstock.groups.migration.downgrade import classic_record, may_become_classic
from penstock.groups.reconciliation import ReconciliationContext, reconcile
from penstock.groups.records import CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, CONSUMER_GROUP_MEMBER_METADATA
from penstock.groups.settings import GroupSettings
from penstock.groups.target_assignment import SHORT_INTERVAL_MS, TargetComputation
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

SESSION: Final = "session"
"""Kind of the timer for the session timeout of a member."""
REBALANCE: Final = "rebalance"
"""Kind of the timer for the rebalance timeout of a member that has to revoke partitions."""
CLASSIC_JOIN: Final = "classic-join"
CLASSIC_SYNC: Final = "classic-sync"
"""Kinds of timers: CLASSIC_JOIN and CLASSIC_SYNC, for a classic member that has to send JoinGroup or SyncGroup."""
TARGET: Final = "target"
"""Kind of the timer that continues the computation of a target assignment."""
RETRY_MS: Final = 1000
"""Delay in milliseconds before the removal of a member is retried if it could not be persisted."""


class ConsumerGroup(MemberChecks):
    """One consumer group: its members, the target assignment, and the current assignment of each member."""

    def __init__(
        self,
        *,
        group_id: str,
        settings: Callable[[], GroupSettings],
        image: Callable[[], ClusterImage],
        timers: Timers[tuple[str, str, str]],
        new_member_id: Callable[[str], str],
    ) -> None:
        super().__init__(group_id, settings)
        self._image = image
        self._timers = timers
        self.new_member_id: Final = new_member_id
        self._patterns = Patterns()
        self._target_computation = TargetComputation(
            group_id,
            consumer_records,
            lambda: compute_assignments(self.state.copy(), self.image, self.settings.consumer_assignors),
        )
        self._resolved_with: tuple[ClusterImage | None, int] = (None, 0)
        """The metadata image that subscriptions were last resolved with, and the resulting group epoch."""

    # -- queries

    @property
    def image(self) -> ClusterImage:
        return self._image()

    @property
    def state_name(self) -> str:
        """The group state as Kafka's tools show it: Empty, Assigning, Reconciling, Stable or Dead."""
        return self.state.name

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.state.subscribed()

    def describe(self) -> DescribedGroup:
        assignor = preferred_assignor(self.state.members.values(), self.settings.consumer_assignors)
        return describe_group(self.group_id, self.state, self.image, assignor)

    # -- records

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record that was persisted or is replayed; nothing else changes the group's state.

        Timers of a removed member are cancelled here, once its removal is persisted, and not when it is decided.
        """
        self.state.apply(kind, key, value)
        if kind == CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
            member = self.state.members.get(key.member_id)
            if member is None or not member.must_revoke:
                self.cancel_timer(REBALANCE, key.member_id)
        elif kind == CONSUMER_GROUP_MEMBER_METADATA and value is None:
            for timer in (SESSION, CLASSIC_JOIN, CLASSIC_SYNC):
                self.cancel_timer(timer, key.member_id)

    def loaded(self, now_ms: int) -> None:
        """Restarts the session and rebalance timeouts of all members after the records were replayed."""
        for member in self.state.members.values():
            self.schedule_session_timeout(member, now_ms)
            if member.must_revoke:
                self._schedule_rebalance_timeout(member, now_ms)

    def tombstones(self) -> tuple[StateRecord, ...]:
        changes = consumer_records.member_tombstones(self.group_id, self.state.members)
        changes += [consumer_records.regex_tombstone(self.group_id, text) for text in self.state.regexes]
        changes += consumer_records.group_tombstones(self.group_id)
        return tuple(map(consumer_records.to_record, changes))

    # -- heartbeats

    def heartbeat(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        """Handles a heartbeat that `check_heartbeat` has accepted: a member joins, stays or leaves.

        Raises Kafka's errors; in that case nothing has changed.
        """
        if command.body.member_epoch < JOINING:
            return self._leave(ticket, command.body, now_ms)
        return self._join_or_update(ticket, command, now_ms)

    def _join_or_update(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: ConsumerGroupHeartbeatRequest = command.body
        draft = Draft(self.state, consumer_records.to_record)
        before = self._get_or_create_member(draft, command)
        after = self.advance(draft, before, updated(before, command), owned_in(request), now_ms)
        is_moved = after is not before and after.assigned != before.assigned
        sends_assignment = request.member_epoch == JOINING or is_full(request) or is_moved
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(draft.state),
            assignment=assignment_of(after.assigned) if sends_assignment else None,
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),))

    def _get_or_create_member(self, draft: Draft[GroupState], command: ClientRequest) -> Member:
        """Returns the member that sent the heartbeat, or a new member if it joins. Raises if the sender is fenced."""
        request: ConsumerGroupHeartbeatRequest = command.body
        state, joins = draft.state, request.member_epoch == JOINING
        static_member = self.static_member(request.instance_id)
        self.check_size(request.member_id, static_member)
        member_id = request.member_id or self.new_member_id(command.client_id)
        if joins and static_member is not None and static_member.member_id != member_id:
            if static_member.epoch != AWAY and static_member.classic is None:
                raise UnreleasedInstanceId(
                    f"instance id {static_member.instance_id!r} still belongs to member {static_member.member_id}"
                )
            return self.replace_static_member(draft, static_member, member_id)
        if request.instance_id is not None and not joins:
            self.check_static_member(request.member_id, request.instance_id)
        if joins and member_id not in state.members:
            return Member(member_id=member_id)
        member = self.member(member_id)
        check_epoch(member, request)
        return member._replace(epoch=JOINING, previous_epoch=JOINING) if member.epoch == AWAY else member

    def replace_static_member(self, draft: Draft[GroupState], static_member: Member, member_id: str) -> Member:
        """Replaces a static member that has rejoined with another member id; returns it with the same partitions."""
        target = draft.state.targets.get(static_member.member_id, frozenset())
        successor = static_member._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
        draft.put(
            *consumer_records.member_tombstones(self.group_id, (static_member.member_id,)),
            consumer_records.member_metadata(self.group_id, successor),
            consumer_records.target(self.group_id, member_id, target),
            consumer_records.current_assignment(self.group_id, successor),
        )
        return successor

    def advance(
        self,
        draft: Draft[GroupState],
        before: Member,
        member: Member,
        owned: Collection[TopicIdPartition] | None,
        now_ms: int,
    ) -> Member:
        """Updates a member from `before` to `member` and reconciles it by one step; returns the reconciled member."""
        resubscribed = member.subscription != before.subscription
        self._update_member(draft, before, member, resubscribed, now_ms)
        after = self._reconciled(draft.state, member, resubscribed, owned)
        if after is not member and after != member:
            draft.put(consumer_records.current_assignment(self.group_id, after))
            if after.must_revoke:
                self._schedule_rebalance_timeout(after, now_ms)
        self.schedule_session_timeout(after, now_ms)
        return after

    def _update_member(
        self, draft: Draft[GroupState], before: Member, member: Member, resubscribed: bool, now_ms: int
    ) -> None:
        """Puts the member's metadata into the draft; updates group epoch and target assignment if needed."""
        state, assignors = draft.state, self.settings.consumer_assignors
        is_new = member.member_id not in state.members
        bump_epoch = is_new or resubscribed
        if is_new or (member is not before and member != before):
            self._check_subscription(draft.state, before, member)
            changed_assignor = member.assignor != before.assignor
            preferred = preferred_assignor(state.members.values(), assignors) if changed_assignor else ""
            draft.put(consumer_records.member_metadata(self.group_id, member))
            if changed_assignor:
                bump_epoch |= preferred != preferred_assignor(draft.state.members.values(), assignors)
        if bump_epoch or not self._is_resolved(self.image):
            self._resolve_topics(draft, bump_epoch, now_ms)
        if draft.state.epoch > draft.state.target_epoch:
            self._update_target(draft, now_ms)

    def _check_subscription(self, state: GroupState, before: Member, member: Member) -> None:
        """Raises InvalidRegularExpression, or GroupMaxSizeReached if members subscribe to too many topic names."""
        text = member.topic_regex
        if text and text != before.topic_regex:
            self._patterns.check(text)
            others = {one.topic_regex for one in state.members.values() if one.member_id != member.member_id}
            if len(others - {"", text}) >= REGEXES_MAX:
                raise InvalidRegularExpression(
                    f"group {self.group_id!r} has {REGEXES_MAX} regular expressions, which is the limit"
                )
        if len(member.topic_names) > len(before.topic_names):
            members = (one for one in state.members.values() if one.member_id != member.member_id)
            names = sum(len(one.topic_names) for one in members)
            if names + len(member.topic_names) > NAMES_MAX:
                raise GroupMaxSizeReached(
                    f"the other members of group {self.group_id!r} subscribe to {names} topics by name; "
                    f"{NAMES_MAX} are allowed in total"
                )

    def _update_target(self, draft: Draft[GroupState], now_ms: int) -> None:
        """Computes the target assignment for the group epoch: at once, or in time slices if the group is large."""
        group_id, state = self.group_id, draft.state
        if not is_large(state, self.image):
            draft.put(*new_target(group_id, state, self.image, self.settings.consumer_assignors, now_ms))
            return
        if not state.target_epoch:  # members need an epoch above 0: a new group starts with an empty target
            draft.put(consumer_records.target_epoch(group_id, state.epoch, now_ms))
            draft.put(consumer_records.group_epoch(group_id, state.epoch + 1, state.metadata_hash))
            self._resolved_with = (self.image, draft.state.epoch)
        self.set_timer(TARGET, "", now_ms, if_absent=True)

    def _heartbeat_interval_ms(self, state: GroupState) -> int:
        interval_ms = self.settings.consumer_heartbeat_interval_ms
        return interval_ms if state.epoch == state.target_epoch else min(interval_ms, SHORT_INTERVAL_MS)

    def _reconciled(
        self, state: GroupState, member: Member, resubscribed: bool, owned: Collection[TopicIdPartition] | None
    ) -> Member:
        if member.is_reconciled_to(state.target_epoch) and not resubscribed:
            return member
        topics = topic_ids(state.topics_of(member), self.image)
        context = ReconciliationContext(
            epoch=state.target_epoch,
            target=[tp for tp in state.targets.get(member.member_id, frozenset()) if tp.topic_id in topics],
            is_free=lambda tp: state.owners.get(tp, member.member_id) == member.member_id,
            owned=owned,
            is_unsubscribed=(lambda tp: tp.topic_id not in topics) if resubscribed else None,
        )
        before = member.current_assignment
        after = reconcile(before, context)
        return member if after is before else member.with_assignment(after)

    # -- leaving

    def _leave(self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
        if request.instance_id is not None:
            member = self.check_static_member(request.member_id, request.instance_id)
        else:
            member = self.member(request.member_id)
        if request.member_epoch == AWAY:
            # Its partitions stay reserved until its session expires. It owns none of them now, so that revoked ones
            # are free, and reserved ones count as assigned since epoch 0 (KIP-1251).
            away = member._replace(epoch=AWAY, assigned=dict.fromkeys(member.assigned, 0), revoking=NOTHING_HELD)
            persist: tuple[StateRecord, ...] = (
                consumer_records.to_record(consumer_records.current_assignment(self.group_id, away)),
            )
        else:
            persist = self.remove_members((member,), now_ms)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return Decision(persist=persist, replies=(Reply(ticket=ticket, value=response),))

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """Removes a member whose timeout has passed, or continues the computation of the target assignment."""
        if kind == BECAME_CONSUMER:
            self.loaded(now_ms)
            return NOTHING
        if kind == TARGET:
            return self._compute_target(now_ms)
        member = self.state.members.get(member_id)
        if member is None or not self._has_expired(member, kind):
            return NOTHING
        log_expired(self.group_id, member_id, kind)
        self.set_timer(kind, member_id, now_ms + RETRY_MS)
        return Decision(persist=self.remove_members((member,), now_ms))

    def _compute_target(self, now_ms: int) -> Decision:
        """Runs the next time slice of the target assignment's computation."""
        result = self._target_computation.run_slice(self.state, self.state.by_instance, now_ms)
        if result is None:
            return NOTHING
        self.set_timer(TARGET, "", result.next_ms)
        return Decision(persist=tuple(map(consumer_records.to_record, result.changes)))

    @staticmethod
    def _has_expired(member: Member, kind: str) -> bool:
        """Whether a timeout of this kind still applies to the member when its timer is due."""
        if kind == REBALANCE:
            return member.must_revoke
        return kind == SESSION or (kind in (CLASSIC_JOIN, CLASSIC_SYNC) and member.classic is not None)

    def remove_members(self, leaving: Iterable[Member], now_ms: int) -> tuple[StateRecord, ...]:
        """Returns the records that remove members and release their partitions.

        The next heartbeat of another member computes the target assignment: once for all members that leave at the
        same time. If only classic members are left, the group is downgraded (KIP-848).
        """
        draft = Draft(self.state, consumer_records.to_record)
        draft.put(*consumer_records.member_tombstones(self.group_id, [member.member_id for member in leaving]))
        if may_become_classic(draft.state, self.settings):
            return self.downgrade(draft.state, is_stable=False, now_ms=now_ms)
        self._resolve_topics(draft, True, now_ms)
        if not draft.state.members:
            draft.put(consumer_records.target_epoch(self.group_id, draft.state.epoch, 0))
        return draft.records

    def downgrade(self, state: GroupState, *, is_stable: bool, now_ms: int) -> tuple[StateRecord, ...]:
        """Returns the records of a classic group with the members of `state`, which rebalances unless `is_stable`."""
        self.set_timer(BECAME_CLASSIC, "", now_ms)
        record = classic_record(self.group_id, state, self.image, is_stable=is_stable, now_ms=now_ms)
        return (*self.tombstones(), record)

    # -- topics

    def topics_changed(self, now_ms: int) -> Decision:
        """Resolves subscriptions with the new metadata image. Members learn of changes in their next heartbeats."""
        if self.is_empty or self._is_resolved(self.image):
            return NOTHING
        draft = Draft(self.state, consumer_records.to_record)
        self._resolve_topics(draft, False, now_ms)
        return Decision(persist=draft.records)

    def _is_resolved(self, image: ClusterImage) -> bool:
        """Whether subscriptions were resolved to topics of this metadata image and the result was persisted."""
        resolved_image, epoch = self._resolved_with
        return resolved_image is image and epoch <= self.state.epoch

    def _resolve_topics(self, draft: Draft[GroupState], bump_epoch: bool, now_ms: int) -> None:
        """Resolves subscriptions to topics; bumps the group epoch if the result differs or `bump_epoch` is set."""
        image = self.image
        resolved = self._patterns.resolve(draft.state.expressions(), image.listed_by_name())
        gone = [text for text in draft.state.regexes if text not in resolved]
        draft.put(*(consumer_records.regex_tombstone(self.group_id, text) for text in gone))
        for text, topics in resolved.items():
            if draft.state.regexes.get(text) != topics:
                draft.put(consumer_records.regex(self.group_id, text, topics, image.revision, now_ms))
                bump_epoch = True
        digest = metadata_hash(draft.state.subscribed(), image)
        if bump_epoch or digest != draft.state.metadata_hash:
            draft.put(consumer_records.group_epoch(self.group_id, draft.state.epoch + 1, digest))
        self._resolved_with = (image, draft.state.epoch)

    # -- timers

    def _timer(self, kind: str, member_id: str) -> tuple[str, str, str]:
        return (self.group_id, kind, member_id)

    def set_timer(self, kind: str, member_id: str, at_ms: int, *, if_absent: bool = False) -> None:
        if not (if_absent and self._timer(kind, member_id) in self._timers):
            self._timers.set(self._timer(kind, member_id), at_ms)

    def cancel_timer(self, kind: str, member_id: str) -> None:
        self._timers.cancel(self._timer(kind, member_id))

    def schedule_session_timeout(self, member: Member, now_ms: int) -> None:
        timeout_ms = self.settings.consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.set_timer(SESSION, member.member_id, now_ms + timeout_ms)

    def _schedule_rebalance_timeout(self, member: Member, now_ms: int) -> None:
        self.set_timer(REBALANCE, member.member_id, now_ms + member.rebalance_timeout_ms)

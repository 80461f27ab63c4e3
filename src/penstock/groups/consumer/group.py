"""A consumer group (KIP-848): heartbeats report subscriptions and owned partitions; the broker assigns. Pure.

Part of the coordinator's state machine: see foundation/decision.py. Some or all of its members may use the classic
protocol: see classic_members.py.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import InvalidRegularExpression, PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps
from penstock.groups.consumer.description import describe_member
from penstock.groups.consumer.members import Member
from penstock.groups.consumer.records import ConsumerRecords
from penstock.groups.consumer.requests import assignment_of, check_epoch, is_full, owned_in, updated
from penstock.groups.consumer.state import ConsumerState
from penstock.groups.consumer.subscriptions import NAMES_MAX, REGEXES_MAX, Patterns, metadata_hash
from penstock.groups.consumer.target import compute_assignments, is_large, preferred_assignor, topic_ids
from penstock.groups.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from penstock.groups.group import BECAME_CLASSIC, BECAME_CONSUMER, SESSION, CoordinatorView
from penstock.groups.migration.downgrade import classic_record, may_become_classic
from penstock.groups.modern.members import AWAY, JOINING, NOTHING_HELD
from penstock.groups.modern.reconciliation import ReconciliationContext
from penstock.groups.modern.reconciling_group import ReconcilingGroup
from penstock.groups.modern.records import Change
from penstock.groups.modern.state import Draft
from penstock.groups.modern.target_assignment import Assignments
from penstock.groups.settings import CONSUMER
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse, DescribedGroup
from penstock.wire.messages.consumer_group_describe import Member as DescribedMember
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

CLASSIC_JOIN: Final = "classic-join"
CLASSIC_SYNC: Final = "classic-sync"
"""Kind of the timer that removes a classic member if it does not send SyncGroup in time. The timer of kind
CLASSIC_JOIN does so for JoinGroup."""


class ConsumerGroup(ReconcilingGroup[Member, TopicIdPartition, ConsumerState]):
    """One consumer group of the KIP-848 protocol. Some of its members may still use the classic protocol."""

    kind = CONSUMER
    title = "group"
    state_class = ConsumerState
    heartbeat_response = ConsumerGroupHeartbeatResponse
    describe_response = ConsumerGroupDescribeResponse
    described_group = DescribedGroup
    records: ConsumerRecords

    def __init__(self, group_id: str, coordinator: CoordinatorView) -> None:
        super().__init__(group_id, coordinator)
        self.new_member_id: Final = coordinator.new_member_id
        self._patterns = Patterns()
        self._resolved_with: tuple[ClusterImage | None, int] = (None, 0)
        """Metadata image with which subscriptions were last resolved to topics, and the resulting group epoch."""
        self._viewers: dict[str, Callable[[str], bool] | None] = {}
        """By regular expression: whether the client that subscribed with it may know a topic; None: all topics."""

    # -- queries

    def _description(self) -> dict[str, Any]:
        return {"assignor_name": preferred_assignor(self.state.members.values(), self.settings.consumer_assignors)}

    def _describe_member(self, member: Member) -> DescribedMember:
        return describe_member(member, self.state.targets.get(member.member_id, ()), self.image)

    def static_member(self, instance_id: str | None) -> Member | None:
        """Returns the member with this group.instance.id; None if there is no such member."""
        holder_id = self.state.by_instance.get(instance_id) if instance_id is not None else None
        return self.state.members[holder_id] if holder_id is not None else None

    def check_static_member(self, member_id: str, instance_id: str) -> Member:
        """Returns the static member (KIP-345). Raises UnknownMemberId, or FencedInstanceId if `member_id` differs."""
        static_member = self.static_member(instance_id)
        if static_member is None:
            raise UnknownMemberId(f"group {self.group_id!r} has no member with instance id {instance_id!r}")
        if static_member.member_id != member_id:
            raise FencedInstanceId(f"instance id {instance_id!r} belongs to member {static_member.member_id} now")
        return static_member

    def is_modern_member(self, member_id: str) -> bool:
        return member_id in self.state.members and self.state.members[member_id].classic is None

    def _held_since(self, member: Member, topic_id: bytes, number: int) -> int | None:
        tp = TopicIdPartition(topic_id, number)
        return member.assigned.get(tp, member.revoking.get(tp))

    def _stale(self, member: Member, why: str) -> PenstockError:
        return super()._stale(member, why) if member.classic is None else IllegalGeneration(why)

    # -- records and timers

    def _own_tombstones(self) -> Iterable[Change]:
        return map(self.records.regex_tombstone, self.state.regexes)

    def _on_member_removed(self, member_id: str) -> None:
        for timer in (SESSION, CLASSIC_JOIN, CLASSIC_SYNC):
            self.cancel_timer(timer, member_id)

    def schedule_session_timeout(self, member: Member, now_ms: int) -> None:
        if member.classic is None:
            super().schedule_session_timeout(member, now_ms)
        else:
            self.set_timer(SESSION, now_ms + member.classic.session_timeout_ms, member.member_id)

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        if kind == BECAME_CONSUMER:
            self.loaded(now_ms)
            return NOTHING
        return super().on_timer(kind, member_id, now_ms)

    def _has_expired(self, member: Member, kind: str) -> bool:
        if kind in (CLASSIC_JOIN, CLASSIC_SYNC):
            return member.classic is not None
        return super()._has_expired(member, kind)

    # -- heartbeats

    def _join_or_update(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: ConsumerGroupHeartbeatRequest = command.body
        draft = self.draft()
        before = self._get_or_create_member(draft, command)
        member = updated(before, command)
        self._note_viewer(member.topic_regex, command)
        after = self.advance(draft, before, member, owned_in(request), now_ms)
        is_moved = after is not before and after.assigned != before.assigned
        # With a new epoch even if it has not changed: a request to join that arrived late, after later heartbeats of
        # the member, may have revoked partitions that the member still believes to own.
        is_behind = request.member_epoch == JOINING or request.member_epoch != after.epoch
        sends_assignment = is_behind or is_full(request) or is_moved
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(draft.state.epoch != draft.state.target_epoch),
            assignment=assignment_of(after.assigned) if sends_assignment else None,
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),))

    def _note_viewer(self, text: str, command: ClientRequest) -> None:
        """Remembers which topics a client may know that subscribes with a regular expression. A new coordinator knows
        it from the first heartbeat of a member with this expression."""
        if text and (text not in self._viewers or command.body.subscribed_topic_regex is not None):
            self._viewers[text] = command.sees
            self._resolved_with = (None, 0)

    def _get_or_create_member(self, draft: Draft[ConsumerState], command: ClientRequest) -> Member:
        """Returns the member that sent the heartbeat, or a new member if it joins. Raises if the sender is fenced."""
        request: ConsumerGroupHeartbeatRequest = command.body
        joins = request.member_epoch == JOINING
        static_member = self.static_member(request.instance_id)
        if static_member is None:
            self.check_size(request.member_id)
        member_id = request.member_id or self.new_member_id(command.client_id)
        if joins and static_member is not None and static_member.member_id != member_id:
            if static_member.epoch != AWAY and static_member.classic is None:
                raise UnreleasedInstanceId(
                    f"instance id {static_member.instance_id!r} still belongs to member {static_member.member_id}"
                )
            return self.replace_static_member(draft, static_member, member_id)
        if request.instance_id is not None and not joins:
            self.check_static_member(request.member_id, request.instance_id)
        member = self._known_or_new_member(member_id, request.member_epoch)
        check_epoch(member, request)
        return member._replace(epoch=JOINING, previous_epoch=JOINING) if member.epoch == AWAY else member

    def replace_static_member(self, draft: Draft[ConsumerState], static_member: Member, member_id: str) -> Member:
        """Gives a rejoined static member the new id `member_id`; returns the member, which keeps its partitions."""
        target = draft.state.targets.get(static_member.member_id, frozenset())
        successor = static_member._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
        draft.put(
            *self.records.member_tombstones((static_member.member_id,)),
            self.records.member_metadata(successor),
            self.records.target(member_id, target),
            self.records.current_assignment(successor),
        )
        return successor

    def advance(
        self,
        draft: Draft[ConsumerState],
        before: Member,
        member: Member,
        owned: Collection[TopicIdPartition] | None,
        now_ms: int,
    ) -> Member:
        """Replaces the member `before` by its new version, `member`, in `draft` (the changes to persist), and returns
        it after one step of reconciliation. `owned`: the partitions that the member reports as owned; None if not in
        the request."""
        resubscribed = member.subscription != before.subscription
        self._update_member(draft, before, member, resubscribed, now_ms)
        after = self._adopt_target(draft, member, resubscribed, owned, now_ms)
        self.schedule_session_timeout(after, now_ms)
        return after

    def _update_member(
        self, draft: Draft[ConsumerState], before: Member, member: Member, resubscribed: bool, now_ms: int
    ) -> None:
        """Adds `member`, the new version of `before`, to `draft`. Updates group epoch and target assignment if the
        member is new or `resubscribed` (changed its subscription), or if the group's assignor or topics change."""
        state, assignors = draft.state, self.settings.consumer_assignors
        is_new = member.member_id not in state.members
        bump_epoch = is_new or resubscribed
        if is_new or (member is not before and member != before):
            self._check_subscription(draft.state, before, member)
            changed_assignor = member.assignor != before.assignor
            preferred = preferred_assignor(state.members.values(), assignors) if changed_assignor else ""
            draft.put(self.records.member_metadata(member))
            if changed_assignor:
                bump_epoch |= preferred != preferred_assignor(draft.state.members.values(), assignors)
        if bump_epoch or not self._is_resolved():
            self._resolve_topics(draft, bump_epoch, now_ms)
        self._update_target(draft, now_ms)

    def _check_subscription(self, state: ConsumerState, before: Member, member: Member) -> None:
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

    def _adopt_target(
        self,
        draft: Draft[ConsumerState],
        member: Member,
        resubscribed: bool,
        owned: Collection[TopicIdPartition] | None,
        now_ms: int,
    ) -> Member:
        """Returns the member after one step of reconciliation with its target assignment."""
        state = draft.state
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
        return self._reconcile(draft, member, context, now_ms)

    # -- leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> tuple[StateRecord, ...]:
        if request.instance_id is not None:
            member = self.check_static_member(request.member_id, request.instance_id)
        else:
            member = self.member(request.member_id)
        if request.member_epoch != AWAY:
            return self.remove_members((member,), now_ms)
        # Its partitions stay reserved until its session expires. It owns none of them now, so that revoked ones are
        # free, and reserved ones count as assigned since epoch 0 (KIP-1251).
        away = member._replace(epoch=AWAY, assigned=dict.fromkeys(member.assigned, 0), revoking=NOTHING_HELD)
        return (self.records.to_record(self.records.current_assignment(away)),)

    def _after_removal(self, draft: Draft[ConsumerState], now_ms: int) -> tuple[StateRecord, ...]:
        """Returns the records to persist after members were removed from `draft` (the changed group state). If all
        other members use the classic protocol and a downgrade is allowed, these records replace the group with a
        classic group (KIP-848)."""
        if may_become_classic(draft.state, self.settings):
            return self.downgrade(draft.state, is_stable=False, now_ms=now_ms)
        return super()._after_removal(draft, now_ms)

    def downgrade(self, state: ConsumerState, *, is_stable: bool, now_ms: int) -> tuple[StateRecord, ...]:
        """Returns the records that replace this group with a classic group, which rebalances unless `is_stable`."""
        self.set_timer(BECAME_CLASSIC, now_ms)
        record = classic_record(self.group_id, state, self.image, is_stable=is_stable, now_ms=now_ms)
        return (*self.tombstones(), record)

    # -- topics and target assignment

    def _is_resolved(self) -> bool:
        image, epoch = self._resolved_with
        return image is self.image and epoch <= self.state.epoch

    def _resolve_topics(self, draft: Draft[ConsumerState], bump_epoch: bool, now_ms: int) -> None:
        image = self.image
        resolved = self._resolve_patterns(draft.state)
        gone = [text for text in draft.state.regexes if text not in resolved]
        draft.put(*(self.records.regex_tombstone(text) for text in gone))
        for text, topics in resolved.items():
            if draft.state.regexes.get(text) != topics:
                draft.put(self.records.regex(text, topics, image.revision, now_ms))
                bump_epoch = True
        digest = metadata_hash(draft.state.subscribed(), image)
        if bump_epoch or digest != draft.state.metadata_hash:
            draft.put(self.records.group_epoch(draft.state.epoch + 1, digest))
        self._resolved_with = (image, draft.state.epoch)

    def _resolve_patterns(self, state: ConsumerState) -> dict[str, frozenset[str]]:
        """Returns the topics that match each regular expression, except those that its client may not know."""
        found = self._patterns.resolve(state.expressions(), self.image.listed_by_name())
        self._viewers = {text: viewer for text, viewer in self._viewers.items() if text in found}
        for text, topics in found.items():
            if text not in self._viewers:
                found[text] = topics & state.regexes.get(text, topics)
            elif (sees := self._viewers[text]) is not None:
                found[text] = frozenset(filter(sees, topics))
        return found

    def _next_epoch(self, draft: Draft[ConsumerState]) -> None:
        draft.put(self.records.group_epoch(draft.state.epoch + 1, draft.state.metadata_hash))
        self._resolved_with = (self.image, draft.state.epoch)

    def _is_large(self, state: ConsumerState) -> bool:
        return is_large(state, self.image)

    def _assign(self, state: ConsumerState) -> Steps[Assignments[TopicIdPartition]]:
        return compute_assignments(state, self.image, self.settings.consumer_assignors)

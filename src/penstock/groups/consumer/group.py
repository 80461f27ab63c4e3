"""One consumer group of the newer protocol (KIP-848): members say in heartbeats what they want and what they own, and
are told what they should own. Pure, and a part of the coordinator's state machine: see foundation/decision.py.

Some or all of its members may speak the classic protocol: see classic_members.py.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import NOTHING, Ask, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import InvalidRegularExpression
from penstock.foundation.timers import Timers
from penstock.groups.changes import Draft
from penstock.groups.consumer import records as consumer_records
from penstock.groups.consumer.checks import MemberChecks
from penstock.groups.consumer.description import describe_group
from penstock.groups.consumer.errors import UnreleasedInstanceId
from penstock.groups.consumer.members import AWAY, JOINING, NOTHING_HELD, Member, TopicIdPartition
from penstock.groups.consumer.requests import assignment_of, check_epoch, is_full, owned_in, updated
from penstock.groups.consumer.state import GroupState
from penstock.groups.consumer.subscriptions import EXPRESSIONS_MAX, NAMES_MAX, Patterns, metadata_hash
from penstock.groups.consumer.target import is_large, new_target, preferred_assignor, shares_of, topic_ids
from penstock.groups.errors import GroupMaxSizeReached
from penstock.groups.group import BECAME_CLASSIC, BECAME_CONSUMER, log_expired
from penstock.groups.migration.downgrade import classic_record, may_become_classic
from penstock.groups.reconciliation import Course, reconcile
from penstock.groups.records import CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, CONSUMER_GROUP_MEMBER_METADATA
from penstock.groups.settings import GroupSettings
from penstock.groups.target_assignment import SOON_MS, Targeting
from penstock.wire.messages.consumer_group_describe import DescribedGroup
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

SESSION: Final = "session"
"""The timer of a member that has to be heard of."""
REBALANCE: Final = "rebalance"
"""The timer of a member that has to give up partitions."""
CLASSIC_JOIN: Final = "classic-join"
CLASSIC_SYNC: Final = "classic-sync"
"""The timers of a classic member that has to join again, or to ask for its assignment."""
TARGET: Final = "target"
"""The timer of a target that is being worked out."""
RETRY_MS: Final = 1000
"""A member whose removal could not be persisted is removed again after this time."""


class ConsumerGroup(MemberChecks):
    """All members of one group, their target, and how far each has come."""

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
        self._targeting = Targeting(
            group_id,
            consumer_records,
            lambda: shares_of(self.state.copy(), self.image, self.settings.consumer_assignors),
        )
        self._seen: tuple[ClusterImage | None, int] = (None, 0)
        """The image that subscriptions were resolved by, and the group epoch that this has come to."""

    # -- what holds

    @property
    def image(self) -> ClusterImage:
        return self._image()

    @property
    def state_name(self) -> str:
        """Empty, Assigning, Reconciling, Stable or Dead."""
        return self.state.name

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.state.subscribed()

    def describe(self) -> DescribedGroup:
        assignor = preferred_assignor(self.state.members.values(), self.settings.consumer_assignors)
        return describe_group(self.group_id, self.state, self.image, assignor)

    # -- records

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """A record was persisted, or is read back: the only place that changes what the group remembers.

        Timers end here, and not where that is decided: the decision may not have been persisted.
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
        """Everything was read back: members have as long to be heard of as if they had just been."""
        for member in self.state.members.values():
            self.expect(member, now_ms)
            if member.must_revoke:
                self._expect_revocation(member, now_ms)

    def tombstones(self) -> tuple[StateRecord, ...]:
        """What removes the group."""
        changes = consumer_records.without_members(self.group_id, self.state.members)
        changes += [consumer_records.without_regex(self.group_id, text) for text in self.state.regexes]
        changes += consumer_records.without_group(self.group_id)
        return tuple(map(consumer_records.to_record, changes))

    # -- heartbeats

    def heartbeat(self, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
        """A member joins, stays or leaves; what it says makes sense (`check_heartbeat`).

        Raises Kafka's errors, and then nothing has changed.
        """
        if ask.body.member_epoch < JOINING:
            return self._leave(ticket, ask.body, now_ms)
        return self._stay(ticket, ask, now_ms)

    def _stay(self, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
        request: ConsumerGroupHeartbeatRequest = ask.body
        draft = Draft(self.state, consumer_records.to_record)
        before = self._admit(draft, ask)
        after = self.advance(draft, before, updated(before, ask), owned_in(request), now_ms)
        is_moved = after is not before and after.assigned != before.assigned
        told = request.member_epoch == JOINING or is_full(request) or is_moved
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(draft.state),
            assignment=assignment_of(after.assigned) if told else None,
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),))

    def _admit(self, draft: Draft[GroupState], ask: Ask) -> Member:
        """Who speaks: a member, or one that becomes a member now."""
        request: ConsumerGroupHeartbeatRequest = ask.body
        state, joins = draft.state, request.member_epoch == JOINING
        holder = self.holder(request.instance_id)
        self.check_room(request.member_id, holder)
        member_id = request.member_id or self.new_member_id(ask.client_id)
        if joins and holder is not None and holder.member_id != member_id:
            if holder.epoch != AWAY and holder.classic is None:
                raise UnreleasedInstanceId(
                    f"instance id {holder.instance_id!r} is with member {holder.member_id} still"
                )
            return self.succeed(draft, holder, member_id)
        if request.instance_id is not None and not joins:
            self.check_holder(request.member_id, request.instance_id)
        if joins and member_id not in state.members:
            return Member(member_id=member_id)
        member = self.member(member_id)
        check_epoch(member, request)
        return member._replace(epoch=JOINING, previous_epoch=JOINING) if member.epoch == AWAY else member

    def succeed(self, draft: Draft[GroupState], holder: Member, member_id: str) -> Member:
        """A static member is back under another id, and takes over what it had."""
        target = draft.state.targets.get(holder.member_id, frozenset())
        successor = holder._replace(member_id=member_id, epoch=JOINING, previous_epoch=JOINING)
        draft.put(
            *consumer_records.without_members(self.group_id, (holder.member_id,)),
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
        """A member says what it wants (`member`, until now `before`) and owns: the member one step further."""
        resubscribed = member.subscription != before.subscription
        self._update(draft, before, member, resubscribed, now_ms)
        after = self._reconciled(draft.state, member, resubscribed, owned)
        if after is not member and after != member:
            draft.put(consumer_records.current_assignment(self.group_id, after))
            if after.must_revoke:
                self._expect_revocation(after, now_ms)
        self.expect(after, now_ms)
        return after

    def _update(
        self, draft: Draft[GroupState], before: Member, member: Member, resubscribed: bool, now_ms: int
    ) -> None:
        """Note what a member says about itself, and let the group's epoch and its target follow."""
        state, assignors = draft.state, self.settings.consumer_assignors
        is_new = member.member_id not in state.members
        is_urgent = is_new or resubscribed
        if is_new or (member is not before and member != before):
            self._check_subscription(draft.state, before, member)
            has_other_vote = member.assignor != before.assignor
            preferred = preferred_assignor(state.members.values(), assignors) if has_other_vote else ""
            draft.put(consumer_records.member_metadata(self.group_id, member))
            if has_other_vote:
                is_urgent |= preferred != preferred_assignor(draft.state.members.values(), assignors)
        if is_urgent or not self._has_seen(self.image):
            self._resolve(draft, is_urgent, now_ms)
        if draft.state.epoch > draft.state.target_epoch:
            self._aim(draft, now_ms)

    def _check_subscription(self, state: GroupState, before: Member, member: Member) -> None:
        """Raises InvalidRegularExpression, or GroupMaxSizeReached if the members together want too much."""
        text = member.topic_regex
        if text and text != before.topic_regex:
            self._patterns.check(text)
            known = state.expressions()
            if text not in known and len(known) >= EXPRESSIONS_MAX:
                raise InvalidRegularExpression(
                    f"group {self.group_id!r} has {EXPRESSIONS_MAX} regular expressions, which is the limit"
                )
        if len(member.topic_names) > len(before.topic_names):
            names = sum(len(one.topic_names) for one in state.members.values())
            if names + len(member.topic_names) > NAMES_MAX:
                raise GroupMaxSizeReached(
                    f"the members of group {self.group_id!r} subscribe to {names} topics by name; "
                    f"{NAMES_MAX} are allowed all together"
                )

    def _aim(self, draft: Draft[GroupState], now_ms: int) -> None:
        """Let the target follow the group's epoch: at once, or in a while if the group is large."""
        group_id, state = self.group_id, draft.state
        if not is_large(state, self.image):
            draft.put(*new_target(group_id, state, self.image, self.settings.consumer_assignors, now_ms))
            return
        if not state.target_epoch:  # a new group: nobody is in epoch 0, so the first target is one of nothing
            draft.put(consumer_records.target_epoch(group_id, state.epoch, now_ms))
            draft.put(consumer_records.group_epoch(group_id, state.epoch + 1, state.metadata_hash))
            self._seen = (self.image, draft.state.epoch)
        self.set_timer(TARGET, "", now_ms, if_absent=True)

    def _heartbeat_interval_ms(self, state: GroupState) -> int:
        interval_ms = self.settings.consumer_heartbeat_interval_ms
        return interval_ms if state.epoch == state.target_epoch else min(interval_ms, SOON_MS)

    def _reconciled(
        self, state: GroupState, member: Member, resubscribed: bool, owned: Collection[TopicIdPartition] | None
    ) -> Member:
        if member.is_reconciled_to(state.target_epoch) and not resubscribed:
            return member
        topics = topic_ids(state.topics_of(member), self.image)
        course = Course(
            epoch=state.target_epoch,
            target=[place for place in state.targets.get(member.member_id, frozenset()) if place.topic_id in topics],
            is_free=lambda place: state.owners.get(place, member.member_id) == member.member_id,
            owned=owned,
            is_dropped=(lambda place: place.topic_id not in topics) if resubscribed else None,
        )
        before = member.standing
        after = reconcile(before, course)
        return member if after is before else member.at(after)

    # -- leaving

    def _leave(self, ticket: Ticket, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
        if request.instance_id is not None:
            member = self.check_holder(request.member_id, request.instance_id)
        else:
            member = self.member(request.member_id)
        if request.member_epoch == AWAY:
            # Its partitions wait for it until the session is over. It owns none of them, so what it had to give up is
            # free, and what it gets back it will have had from the start (KIP-1251).
            away = member._replace(epoch=AWAY, assigned=dict.fromkeys(member.assigned, 0), revoking=NOTHING_HELD)
            persist: tuple[StateRecord, ...] = (
                consumer_records.to_record(consumer_records.current_assignment(self.group_id, away)),
            )
        else:
            persist = self.without((member,), now_ms)
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return Decision(persist=persist, replies=(Reply(ticket=ticket, value=response),))

    def due(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """A timer is due: a member was silent, or did not do what it was told to, for too long."""
        if kind == BECAME_CONSUMER:
            self.loaded(now_ms)
            return NOTHING
        if kind == TARGET:
            return self._go_on(now_ms)
        member = self.state.members.get(member_id)
        if member is None or not self._is_lost(member, kind):
            return NOTHING
        log_expired(self.group_id, member_id, kind)
        self.set_timer(kind, member_id, now_ms + RETRY_MS)
        return Decision(persist=self.without((member,), now_ms))

    def _go_on(self, now_ms: int) -> Decision:
        """Work on the target."""
        piece = self._targeting.go_on(self.state, self.state.by_instance, now_ms)
        if piece is None:
            return NOTHING
        self.set_timer(TARGET, "", piece.again_ms)
        return Decision(persist=tuple(map(consumer_records.to_record, piece.changes)))

    @staticmethod
    def _is_lost(member: Member, kind: str) -> bool:
        """Whether a timer, now that it is due, still means this member as it is."""
        if kind == REBALANCE:
            return member.must_revoke
        return kind == SESSION or (kind in (CLASSIC_JOIN, CLASSIC_SYNC) and member.classic is not None)

    def without(self, leaving: Iterable[Member], now_ms: int) -> tuple[StateRecord, ...]:
        """What removes members. Their partitions are free from here on; the target follows with the next heartbeat of
        another member, so that many who leave at once are worth one target. If only classic ones are left, the group
        becomes a classic one (KIP-848)."""
        draft = Draft(self.state, consumer_records.to_record)
        draft.put(*consumer_records.without_members(self.group_id, [member.member_id for member in leaving]))
        if may_become_classic(draft.state, self.settings):
            return self.downgrade(draft.state, is_settled=False, now_ms=now_ms)
        self._resolve(draft, True, now_ms)
        if not draft.state.members:
            draft.put(consumer_records.target_epoch(self.group_id, draft.state.epoch, 0))
        return draft.records

    def downgrade(self, state: GroupState, *, is_settled: bool, now_ms: int) -> tuple[StateRecord, ...]:
        """What makes the group a classic one, with the members of `state`; settled, if it need not be rebalanced."""
        self.set_timer(BECAME_CLASSIC, "", now_ms)
        record = classic_record(self.group_id, state, self.image, is_settled=is_settled, now_ms=now_ms)
        return (*self.tombstones(), record)

    # -- topics

    def topics_changed(self, now_ms: int) -> Decision:
        """The image is a new one. What that changes for members they hear in their next heartbeats."""
        if self.is_empty or self._has_seen(self.image):
            return NOTHING
        draft = Draft(self.state, consumer_records.to_record)
        self._resolve(draft, False, now_ms)
        return Decision(persist=draft.records)

    def _has_seen(self, image: ClusterImage) -> bool:
        """Whether subscriptions were resolved by this image, and what came of it was persisted."""
        seen, epoch = self._seen
        return seen is image and epoch <= self.state.epoch

    def _resolve(self, draft: Draft[GroupState], is_urgent: bool, now_ms: int) -> None:
        """Resolve expressions and look at the topics: a new group epoch if that changes anything, or if urgent."""
        image = self.image
        resolved = self._patterns.resolve(draft.state.expressions(), image.listed_by_name())
        gone = [text for text in draft.state.regexes if text not in resolved]
        draft.put(*(consumer_records.without_regex(self.group_id, text) for text in gone))
        for text, topics in resolved.items():
            if draft.state.regexes.get(text) != topics:
                draft.put(consumer_records.regex(self.group_id, text, topics, image.revision, now_ms))
                is_urgent = True
        digest = metadata_hash(draft.state.subscribed(), image)
        if is_urgent or digest != draft.state.metadata_hash:
            draft.put(consumer_records.group_epoch(self.group_id, draft.state.epoch + 1, digest))
        self._seen = (image, draft.state.epoch)

    # -- timers

    def _timer(self, kind: str, member_id: str) -> tuple[str, str, str]:
        return (self.group_id, kind, member_id)

    def set_timer(self, kind: str, member_id: str, at_ms: int, *, if_absent: bool = False) -> None:
        if not (if_absent and self._timer(kind, member_id) in self._timers):
            self._timers.set(self._timer(kind, member_id), at_ms)

    def cancel_timer(self, kind: str, member_id: str) -> None:
        self._timers.cancel(self._timer(kind, member_id))

    def expect(self, member: Member, now_ms: int) -> None:
        """The member has to be heard of within its session timeout."""
        timeout_ms = self.settings.consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.set_timer(SESSION, member.member_id, now_ms + timeout_ms)

    def _expect_revocation(self, member: Member, now_ms: int) -> None:
        """The member has to give up partitions within its rebalance timeout."""
        self.set_timer(REBALANCE, member.member_id, now_ms + member.rebalance_timeout_ms)

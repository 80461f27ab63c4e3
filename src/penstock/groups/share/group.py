"""One share group (KIP-932): its members work off the same messages, and each is told where to fetch them. Pure, and
a part of the coordinator's state machine: see foundation/decision.py.

Which message is with whom is not decided here, but by the leader of its partition: see queues/. Here it is known in
which topics the group has such delivery state, so that it goes when the group does: see delivery.py.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import NOTHING, Ask, Decision, Reply, StateRecord, Ticket
from penstock.foundation.steps import run_steps
from penstock.foundation.timers import Timers
from penstock.groups.changes import Draft
from penstock.groups.commands import AddCompanions
from penstock.groups.consumer.group import RETRY_MS, SESSION
from penstock.groups.consumer.members import JOINING
from penstock.groups.consumer.subscriptions import metadata_hash
from penstock.groups.errors import GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId
from penstock.groups.group import log_expired
from penstock.groups.records import SHARE_GROUP_MEMBER_METADATA
from penstock.groups.settings import GroupSettings
from penstock.groups.share import records as share_records
from penstock.groups.share.delivery import DROPPING, Dropping
from penstock.groups.share.description import describe_share_group
from penstock.groups.share.members import NOTHING_ASSIGNED, ShareMember
from penstock.groups.share.records import Delivering
from penstock.groups.share.requests import assignment_of, check_epoch, updated
from penstock.groups.share.state import ShareState
from penstock.groups.share.target import deliverable, is_large, shares_of
from penstock.groups.target_assignment import SOON_MS, Targeting
from penstock.wire.messages.share_group_describe import DescribedGroup
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

TARGET: Final = "target"
"""The timer of a target that is being worked out."""


class ShareGroup:
    """All members of one group, their target, and where the group has delivery state."""

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
        """To be read; only `apply_record` changes it."""
        self.dropping: Final = Dropping(group_id, self.state)
        self._targeting = Targeting(group_id, share_records, lambda: shares_of(self.state.copy(), self.image))
        self._seen: tuple[ClusterImage | None, Delivering, int] = (None, share_records.NOWHERE, 0)
        """What topics were looked up by, and the group epoch that this has come to."""

    # -- what holds

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
        """Empty, Stable or Dead."""
        return self.state.name

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.state.subscribed()

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Share groups have no committed offsets."""
        raise GroupIdNotFound(f"{self.group_id!r} is a share group, not a consumer group")

    def describe(self) -> DescribedGroup:
        return describe_share_group(self.group_id, self.state, self.image)

    def member(self, member_id: str) -> ShareMember:
        """Raises UnknownMemberId."""
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is no member of share group {self.group_id!r}; it has to join")
        return member

    # -- records

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """A record was persisted, or is read back: the only place that changes what the group remembers."""
        self.state.apply(kind, key, value)
        if kind == SHARE_GROUP_MEMBER_METADATA and value is None:
            self._timers.cancel(self._timer(SESSION, key.member_id))

    def loaded(self, now_ms: int) -> None:
        """Everything was read back: members have as long to be heard of as if they had just been."""
        for member_id in self.state.members:
            self._expect(member_id, now_ms)
        if self.state.delivering.deleting:
            self._timers.set(self._timer(DROPPING, ""), now_ms)

    def tombstones(self) -> tuple[StateRecord, ...]:
        """What removes the group."""
        changes = share_records.without_members(self.group_id, self.state.members)
        changes += share_records.without_group(self.group_id)
        return tuple(map(share_records.to_record, changes))

    # -- heartbeats

    def heartbeat(self, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
        """A member joins, stays or leaves; what it says makes sense (`check_heartbeat`).

        Raises Kafka's errors, and then nothing has changed.
        """
        if ask.body.member_epoch < JOINING:
            return self._leave(ticket, ask.body, now_ms)
        return self._stay(ticket, ask, now_ms)

    def _stay(self, ticket: Ticket, ask: Ask, now_ms: int) -> Decision:
        request: ShareGroupHeartbeatRequest = ask.body
        draft = Draft(self.state, share_records.to_record)
        before = self._admit(request)
        member = updated(before, ask)
        self._note(draft, before, member, now_ms)
        after = self._reconciled(draft.state, member)
        if after.epoch != member.epoch or after.assigned != member.assigned:
            draft.put(share_records.current_assignment(self.group_id, after))
        self._expect(after.member_id, now_ms)
        told = request.member_epoch == JOINING or after.assigned != before.assigned
        subscription = self._missing_companions(draft.state)
        interval_ms = self.settings.share_heartbeat_interval_ms
        is_aiming = draft.state.epoch > draft.state.target_epoch
        response = ShareGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=min(interval_ms, SOON_MS) if subscription or is_aiming else interval_ms,
            assignment=assignment_of(after) if told else None,
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),), effects=subscription)

    def _admit(self, request: ShareGroupHeartbeatRequest) -> ShareMember:
        """Who speaks: a member, or one that becomes a member now."""
        if request.member_epoch == JOINING and request.member_id not in self.state.members:
            size_max = self.settings.share_size_max
            if len(self.state.members) >= size_max:
                raise GroupMaxSizeReached(f"group {self.group_id!r} has {size_max} members, which is its limit")
            return ShareMember(member_id=request.member_id)
        member = self.member(request.member_id)
        check_epoch(member, request.member_epoch)
        return member

    def _note(self, draft: Draft[ShareState], before: ShareMember, member: ShareMember, now_ms: int) -> None:
        """Note what a member says about itself, and let the group's epoch and its target follow."""
        is_new = member.member_id not in draft.state.members
        if is_new or member is not before:
            draft.put(share_records.member_metadata(self.group_id, member))
        is_urgent = is_new or member.topic_names != before.topic_names
        if is_urgent or not self._has_seen():
            self._resolve(draft, is_urgent)
        if draft.state.epoch > draft.state.target_epoch:
            self._aim(draft, now_ms)

    def _reconciled(self, state: ShareState, member: ShareMember) -> ShareMember:
        """There is nothing to give up first: a partition may be with several members."""
        if member.epoch == state.target_epoch:
            return member
        return member._replace(
            epoch=state.target_epoch,
            previous_epoch=member.epoch,
            assigned=state.targets.get(member.member_id, NOTHING_ASSIGNED),
        )

    def _missing_companions(self, state: ShareState) -> tuple[AddCompanions, ...]:
        """Delivery state needs a place before anything is assigned; it is asked for until it is there."""
        topics = (self.image.by_name.get(name) for name in state.subscribed())
        lacking = frozenset(
            topic.topic_id for topic in topics if topic is not None and not topic.companion and not topic.is_internal
        )
        return (AddCompanions(topic_ids=lacking),) if lacking else ()

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
        return Decision(persist=self._without(member), replies=(Reply(ticket=ticket, value=response),))

    def due(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """A timer is due: a member was silent for too long, or delivery state is still to be dropped."""
        if kind == DROPPING:
            decision = self.dropping.remind()
            if decision.effects:
                self.expect_dropped(now_ms)
            return decision
        if kind == TARGET:
            return self._go_on(now_ms)
        member = self.state.members.get(member_id)
        if member is None or kind != SESSION:
            return NOTHING
        log_expired(self.group_id, member_id, kind)
        self._timers.set(self._timer(SESSION, member_id), now_ms + RETRY_MS)
        return Decision(persist=self._without(member))

    def _without(self, member: ShareMember) -> tuple[StateRecord, ...]:
        """What removes a member. The target follows with the next heartbeat of another one."""
        draft = Draft(self.state, share_records.to_record)
        draft.put(*share_records.without_members(self.group_id, (member.member_id,)))
        self._resolve(draft, True)
        if not draft.state.members:
            draft.put(share_records.target_epoch(self.group_id, draft.state.epoch, 0))
        return draft.records

    # -- topics

    def topics_changed(self, now_ms: int) -> Decision:
        """The image is a new one. What that changes for members they hear in their next heartbeats."""
        if self._has_seen():
            return NOTHING
        draft = Draft(self.state, share_records.to_record)
        known = draft.state.delivering
        left = Delivering(
            {topic_id: entry for topic_id, entry in known.topics.items() if topic_id in self.image.topics},
            {topic_id: name for topic_id, name in known.deleting.items() if topic_id in self.image.topics},
        )
        if left != known:  # with a topic its delivery state is gone
            draft.put(share_records.delivering(self.group_id, left))
        if draft.state.members:
            self._resolve(draft, False)
        return Decision(persist=draft.records)

    def _has_seen(self) -> bool:
        """Whether topics were looked up as they are now, and what came of it was persisted."""
        image, delivering, epoch = self._seen
        return image is self.image and delivering is self.state.delivering and epoch <= self.state.epoch

    def _resolve(self, draft: Draft[ShareState], is_urgent: bool) -> None:
        """Look at the topics: a new group epoch if that changes anything, or if urgent."""
        found = deliverable(draft.state, self.image, draft.state.subscribed())
        digest = metadata_hash((topic.name for topic in found), self.image)
        if is_urgent or digest != draft.state.metadata_hash:
            draft.put(share_records.group_epoch(self.group_id, draft.state.epoch + 1, digest))
        self._seen = (self.image, self.state.delivering, draft.state.epoch)

    def _aim(self, draft: Draft[ShareState], now_ms: int) -> None:
        """Let the target follow the group's epoch: at once, or in a while if the group is large."""
        self._note_delivery(draft)
        image, state, group_id = self.image, draft.state, self.group_id
        if not is_large(state, image):
            shares = run_steps(shares_of(state, image))
            changed = [member_id for member_id, share in shares.items() if state.targets.get(member_id) != share]
            draft.put(*(share_records.target(group_id, member_id, shares[member_id]) for member_id in changed))
            draft.put(share_records.target_epoch(group_id, state.epoch, now_ms))
            return
        if not state.target_epoch:  # a new group: nobody is in epoch 0, so the first target is one of nothing
            draft.put(share_records.target_epoch(group_id, state.epoch, now_ms))
            draft.put(share_records.group_epoch(group_id, state.epoch + 1, state.metadata_hash))
            self._seen = (image, self.state.delivering, draft.state.epoch)
        if self._timer(TARGET, "") not in self._timers:
            self._timers.set(self._timer(TARGET, ""), now_ms)

    def _note_delivery(self, draft: Draft[ShareState]) -> None:
        """Note in which topics, and in how many partitions of them, the group may have delivery state from now on."""
        known = draft.state.delivering
        topics = deliverable(draft.state, self.image, draft.state.subscribed())
        counts = {topic.topic_id: (topic.name, len(topic.partitions)) for topic in topics}
        if any(known.topics.get(topic_id) != entry for topic_id, entry in counts.items()):
            wider = Delivering({**known.topics, **counts}, known.deleting)
            draft.put(share_records.delivering(self.group_id, wider))

    def _go_on(self, now_ms: int) -> Decision:
        """Work on the target."""
        piece = self._targeting.go_on(self.state, {}, now_ms)
        if piece is None:
            return NOTHING
        self._timers.set(self._timer(TARGET, ""), piece.again_ms)
        draft = Draft(self.state, share_records.to_record)
        if piece.changes:  # topics may have changed since a member was heard of
            self._note_delivery(draft)
        draft.put(*piece.changes)
        return Decision(persist=draft.records)

    # -- timers

    def _timer(self, kind: str, member_id: str) -> tuple[str, str, str]:
        return (self.group_id, kind, member_id)

    def _expect(self, member_id: str, now_ms: int) -> None:
        """The member has to be heard of within its session timeout."""
        self._timers.set(self._timer(SESSION, member_id), now_ms + self.settings.share_session_timeout_ms)

    def expect_dropped(self, now_ms: int) -> None:
        """Delivery state has to be dropped within some time, or it is asked for again."""
        self._timers.set(self._timer(DROPPING, ""), now_ms + RETRY_MS)

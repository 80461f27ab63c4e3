"""A classic group: members join, one of them shares the work out, all hear of it and go on until someone changes.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance -> ...

Joining is a barrier: it ends when all members have joined again, or time is up. Then the leader is told who is there,
and everyone waits for what it decides (SyncGroup). Only that is persisted, and only what is persisted is handed out.
Whatever lies between two stable generations is lost with the coordinator: then the last stable one holds again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from penstock.foundation.decision import Decision, StateRecord
from penstock.foundation.timers import Timers
from penstock.groups.classic.members import Member, Roster
from penstock.groups.classic.membership import JOIN, SESSION, SYNC, Membership, State
from penstock.groups.classic.subscribed_topics import CONSUMER, subscribed_topics
from penstock.groups.errors import RebalanceInProgress, UnknownMemberId
from penstock.groups.group import BECAME_CLASSIC, log_expired
from penstock.groups.outbox import Outbox
from penstock.groups.records import GROUP_METADATA, GROUP_METADATA_VERSION, GroupKey, GroupMetadataValue
from penstock.groups.settings import GroupSettings
from penstock.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from penstock.wire.state import state_record

RETRY_MS: Final = 1000
"""When something is tried again that could not be persisted."""


class ClassicGroup(Membership):
    """One group. Its members' metadata and assignments are bytes that only clients understand."""

    def __init__(
        self, *, group_id: str, settings: Callable[[], GroupSettings], timers: Timers[tuple[str, str, str]]
    ) -> None:
        super().__init__(group_id=group_id, settings=settings, timers=timers)
        self.stored_generation = 0
        """The last that was persisted: the one that its members have assignments of."""
        self.changed_ms = -1
        """When it came to what was last persisted of it; -1 if nobody noted that."""
        self.is_stored = False
        """Whether the log has a record of it; else it is held by offsets, or by someone who is about to join."""
        self.arriving: dict[str, Member] = {}
        """Members that the record under way brings in."""
        self._subscribed: tuple[frozenset[str] | None] | None = None
        """What `subscribed_topics` has found, once it was asked."""
        self._is_initial = False
        self._initial_end_ms = 0
        """Whether the first members of an empty group are being waited for, and until when at most (KIP-134)."""

    # -- what others ask

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_vacant(self) -> bool:
        """Whether nothing but offsets could hold it."""
        return self.is_empty and not self.is_stored and not self.pending

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members of this generation read; None if that is not known."""
        if not self.is_of_consumers:
            return None
        if self._subscribed is None:
            self._subscribed = (subscribed_topics(member.metadata(self.protocol) for member in self.roster),)
        return self._subscribed[0]

    def subscribes_to(self, topic: str) -> bool:
        topics = self.subscribed_topics
        return self.is_of_consumers if topics is None else topic in topics

    def retention_from_ms(self, committed_ms: int) -> int | None:
        """Since when the time of an offset runs that was committed then; None if it does not run now."""
        if self.protocol_type is None:
            return committed_ms  # of a standalone consumer, who is not seen to leave
        if self.is_empty:
            return committed_ms if self.changed_ms < 0 else self.changed_ms
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return committed_ms  # of a topic that is no longer subscribed to
        return None

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool = False
    ) -> None:
        if epoch < 0 and self.is_empty:
            return  # someone who reads without being a member, or an administrator
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(epoch)
        elif not transactional:  # transactions of clients before KIP-447 do not say who commits
            raise UnknownMemberId(f"group {self.group_id!r} has members, and only they may commit")
        if not transactional and self.generation != self.stored_generation:
            # It may be lost with the coordinator, and then the generation before it may commit again.
            raise RebalanceInProgress(f"generation {self.generation} of {self.group_id!r} is not agreed on yet; sync")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Members of classic groups need not say who they are when they fetch offsets."""

    # -- a rebalance

    def rebalance(self, out: Outbox, now_ms: int) -> None:
        """Members have come, gone or changed: begin a rebalance, or go on with the one that is under way."""
        if self.state is State.PREPARING:
            self.complete_if_joined(out, now_ms)
        else:
            self.prepare(out, now_ms)

    def prepare(self, out: Outbox, now_ms: int) -> None:
        """Have all members join again."""
        waiting, self.syncs = self.syncs, {}
        for member_id, ticket in waiting.items():
            out.refuse(ticket, RebalanceInProgress(f"group {self.group_id!r} is being rebalanced; join again"))
            self._heard_again(member_id, now_ms)
        self.unsynced.clear()
        self.cancel_timer(SYNC)
        self._is_initial = self.is_empty
        self.move(State.PREPARING)
        if self._is_initial:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._initial_end_ms = now_ms + max(delay_ms, self.roster.rebalance_timeout_ms)
            self.has_newcomer = False
            self.set_timer(JOIN, now_ms + delay_ms)
        else:
            self.set_timer(JOIN, now_ms + self.roster.rebalance_timeout_ms)
            self.complete_if_joined(out, now_ms)

    def _heard_again(self, member_id: str, now_ms: int) -> None:
        """A member has its answer: its session, which did not count while it waited, begins anew."""
        member = self.roster.get(member_id)
        if member is not None:
            self.heard(member, now_ms)

    def complete_if_joined(self, out: Outbox, now_ms: int) -> None:
        """If all are there, there is nothing to wait for; but at the beginning more may come."""
        if self.state is State.PREPARING and self.has_all_joined and not self._is_initial:
            self._complete(out, now_ms)

    def _complete(self, out: Outbox, now_ms: int) -> None:
        """The next generation is made of those who have joined, and of static members, who may be restarting.

        A static member that does not come back is gone when its session is over, or when time is up for its sync.
        """
        for member in list(self.roster):
            if member.member_id not in self.joins and member.instance_id is None:
                log_expired(self.group_id, member.member_id, JOIN)
                self.remove(out, member.member_id)
        if not self.roster:
            # The timer stays until this is persisted, to try again.
            self.set_timer(JOIN, now_ms + RETRY_MS)
            out.records.append(self.record(now_ms, generation=self.generation + 1))
            return
        if not self.joins:
            self.set_timer(JOIN, now_ms + self.roster.rebalance_timeout_ms)  # there is nobody to share the work out
            return
        if self.leader not in self.joins:
            self.leader = next(iter(self.joins))
        self.cancel_timer(JOIN)
        self.move(State.COMPLETING)
        self.generation += 1
        self.protocol = self.roster.choose_protocol()
        self._subscribed = None
        waiting, self.joins = self.joins, {}
        for member in list(self.roster):
            if member.member_id in waiting:
                out.reply(waiting[member.member_id], self.joined(member))
            self.roster.put(replace(member, is_new=False))
            self.heard(member, now_ms)
        self.set_timer(SYNC, now_ms + self.roster.rebalance_timeout_ms)

    def joined(
        self,
        member: Member,
        *,
        leader: str | None = None,
        roster: Roster | None = None,
        skip_assignment: bool = False,
    ) -> JoinGroupResponse:
        """What a member of this generation is told when it joins; the leader is told who is there."""
        leader = leader or self.leader or ""
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader,
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=self._introduce(roster or self.roster) if member.member_id == leader else (),
        )

    def _introduce(self, roster: Roster) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in roster
        ]

    def hand_out(self, out: Outbox, shared: Sequence[SyncGroupRequestAssignment], now_ms: int) -> None:
        """The leader has shared the work out: persist it, then tell everyone who has asked."""
        given = {entry.member_id: entry.assignment for entry in shared}
        out.records.append(self.record(now_ms, assignments=given))
        # If this is not persisted the group does not become stable, and the set has no meaning.
        self.unsynced = {member_id for member_id in self.roster.ids if member_id not in self.syncs}
        waiting, self.syncs = self.syncs, {}
        for member_id, ticket in waiting.items():
            out.reply(ticket, self.synced(given.get(member_id, b"")))
            self._heard_again(member_id, now_ms)

    def synced(self, assignment: bytes) -> SyncGroupResponse:
        """What a member is told when it syncs."""
        return SyncGroupResponse(
            error_code=0, protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment
        )

    def note_synced(self, member: Member, now_ms: int) -> None:
        """A member of a stable group has its assignment now."""
        self.heard(member, now_ms)
        self.unsynced.discard(member.member_id)
        if not self.unsynced:
            self.cancel_timer(SYNC)

    # -- time

    def due(self, kind: str, member_id: str, now_ms: int) -> Decision:
        out = Outbox()
        if kind == SESSION:
            self._on_silence(out, member_id, now_ms)
        elif kind == JOIN:
            self._on_join_timeout(out, now_ms)
        elif kind == SYNC:
            self._on_sync_timeout(out, now_ms)
        elif kind == BECAME_CLASSIC:
            self.loaded(now_ms)
        return out.decision()

    def _on_silence(self, out: Outbox, member_id: str, now_ms: int) -> None:
        if member_id in self.pending:
            self.forget(member_id)
            self.complete_if_joined(out, now_ms)
            return
        member = self.roster.get(member_id)
        if member is None:
            return
        if not member.is_new and (member_id in self.joins or member_id in self.syncs):
            return  # it is the coordinator who is silent: the session begins with the answer
        log_expired(self.group_id, member_id, SESSION)
        self.remove(out, member_id)
        self.rebalance(out, now_ms)

    def _on_join_timeout(self, out: Outbox, now_ms: int) -> None:
        if self.state is not State.PREPARING:
            return
        if self._is_initial and self.has_newcomer and now_ms < self._initial_end_ms:
            self.has_newcomer = False
            self.set_timer(JOIN, min(now_ms + self.settings.initial_rebalance_delay_ms, self._initial_end_ms))
        else:
            self._complete(out, now_ms)

    def _on_sync_timeout(self, out: Outbox, now_ms: int) -> None:
        """Whoever has joined and does not sync must not keep its share, or keep the others waiting."""
        if self.state is State.COMPLETING:
            lost = [member_id for member_id in self.roster.ids if member_id not in self.syncs]
        else:
            lost = [member_id for member_id in self.roster.ids if member_id in self.unsynced]
        for member_id in lost:
            log_expired(self.group_id, member_id, SYNC)
            self.remove(out, member_id)
        if lost:
            self.rebalance(out, now_ms)

    def loaded(self, now_ms: int) -> None:
        for member in self.roster:
            self.heard(member, now_ms)
        is_too_large = len(self.roster) > self.settings.size_max  # the last ones to join again are turned away
        # Without a leader it was a consumer group last, and nobody has shared out yet what those had who are gone.
        if self.state is State.STABLE and (is_too_large or self.leader is None):
            self.prepare(Outbox(), now_ms)  # nobody waits in a stable group: there is nobody to tell

    # -- what is persisted

    def record(
        self,
        now_ms: int,
        *,
        generation: int | None = None,
        roster: Roster | None = None,
        leader: str | None = None,
        assignments: Mapping[str, bytes] = MappingProxyType({}),
    ) -> StateRecord:
        """The group as it is to be, with what each member is assigned."""
        members = self.roster if roster is None else roster
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation if generation is None else generation,
            protocol=self.protocol if members else None,
            leader=leader or self.leader,
            current_state_timestamp=now_ms,
            members=[member.to_record(self.protocol, assignments.get(member.member_id, b"")) for member in members],
        )
        return state_record(GROUP_METADATA, GroupKey(group=self.group_id), value, GROUP_METADATA_VERSION)

    def tombstones(self) -> tuple[StateRecord, ...]:
        return (state_record(GROUP_METADATA, GroupKey(group=self.group_id), None),) if self.is_stored else ()

    def apply_record(self, kind: int, key: GroupKey, value: GroupMetadataValue | None) -> None:
        """Be what a record says: stable, or empty. A member that is known already keeps its other protocols."""
        if value is None:
            self.close()
            return
        known = {member.member_id: member.protocols for member in (*self.roster, *self.arriving.values())}
        roster = Roster(
            Member.from_record(entry, known.get(entry.member_id) or ((value.protocol or "", entry.subscription),))
            for entry in value.members
        )
        for member_id in self.roster.ids:
            if member_id not in roster:
                self.cancel_timer(SESSION, member_id)
        self.roster = roster
        self.arriving.clear()
        self.unsynced.intersection_update(roster.ids)
        self.generation = self.stored_generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self.changed_ms = value.current_state_timestamp
        self.is_stored = True
        self.state = State.STABLE if roster else State.EMPTY
        self._subscribed = None
        self.cancel_timer(JOIN)
        if not self.unsynced:
            self.cancel_timer(SYNC)

"""A classic group: JoinGroup and SyncGroup rebalances, with the assignment computed by the leader of the group.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance -> ...

The join phase is a barrier: it ends when all members have rejoined or the rebalance timeout has passed. Then the
leader gets the list of members, and all members wait for the assignment that the leader sends (SyncGroup). Only a
complete assignment is persisted, and only a persisted assignment is sent to members. If the coordinator fails during
a rebalance, the next coordinator continues with the last stable generation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from penstock.foundation.decision import Decision, StateRecord
from penstock.groups.classic.members import Member, Roster
from penstock.groups.classic.membership import JOIN, SYNC, Membership, State
from penstock.groups.classic.subscribed_topics import CONSUMER, subscribed_topics
from penstock.groups.errors import RebalanceInProgress, UnknownMemberId
from penstock.groups.group import BECAME_CLASSIC, RETRY_MS, SESSION, CoordinatorView
from penstock.groups.outbox import Outbox
from penstock.groups.records import GROUP_METADATA, GROUP_METADATA_VERSION, GroupKey, GroupMetadataValue
from penstock.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from penstock.wire.state import state_record


class ClassicGroup(Membership):
    """One classic group. The metadata and assignments of its members are opaque bytes."""

    def __init__(self, group_id: str, coordinator: CoordinatorView) -> None:
        super().__init__(group_id, coordinator)
        self.stored_generation = 0
        """The last persisted generation of the group, to which the members' persisted assignments belong."""
        self.changed_ms = -1
        """Time at which the group entered its last persisted state; -1 if unknown."""
        self.is_stored = False
        """Whether the log has a group metadata record of this group."""
        self.uncommitted_members: dict[str, Member] = {}
        """Members, by member id, that a decided but not yet persisted record adds to the group."""
        self._subscribed: tuple[frozenset[str] | None] | None = None
        """The cached result of `subscribed_topics`."""
        self._is_initial = False
        self._initial_end_ms = 0
        """Latest time, in ms, at which the initial rebalance delay ends, however often it is extended (KIP-134)."""

    # -- queries

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_vacant(self) -> bool:
        """Whether the group has no members, no pending member ids and no group metadata record in the log."""
        return self.is_empty and not self.is_stored and not self.pending

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None if they are unknown: a member's subscription cannot be
        decoded, or the members are not consumers (another protocol type)."""
        if not self.is_of_consumers:
            return None
        if self._subscribed is None:
            self._subscribed = (subscribed_topics(member.metadata(self.protocol) for member in self.roster),)
        return self._subscribed[0]

    def subscribes_to(self, topic: str) -> bool:
        topics = self.subscribed_topics
        return self.is_of_consumers if topics is None else topic in topics

    def retention_from_ms(self, committed_ms: int) -> int | None:
        """Returns when retention of an offset committed at `committed_ms` starts; None while it cannot expire."""
        if self.protocol_type is None:
            return committed_ms  # a standalone consumer, of which it is not known when it stops
        if self.is_empty:
            return committed_ms if self.changed_ms < 0 else self.changed_ms
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return committed_ms  # callers exclude subscribed topics
        return None

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, *, transactional: bool = False
    ) -> None:
        if epoch < 0 and self.is_empty:
            return  # a standalone consumer or an administrator
        if epoch >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            self.check_generation(epoch)
        elif not transactional:  # transactions of clients before KIP-447 name no member
            raise UnknownMemberId(f"group {self.group_id!r} has members; only they may commit")
        if not transactional and self.generation != self.stored_generation:
            # If the coordinator fails now, the previous generation is current again and may commit.
            raise RebalanceInProgress(f"generation {self.generation} of {self.group_id!r} is not assigned yet; sync")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Accepts every request: members of classic groups need not identify themselves when they fetch offsets."""

    # -- rebalance

    def rebalance(self, out: Outbox, now_ms: int) -> None:
        """Starts a rebalance. If a rebalance is already in its join phase, starts no other, but completes the join
        phase if all members have joined."""
        if self.state is State.PREPARING:
            self.complete_if_joined(out, now_ms)
        else:
            self.prepare_rebalance(out, now_ms)

    def prepare_rebalance(self, out: Outbox, now_ms: int) -> None:
        """Starts a rebalance: all members have to rejoin."""
        waiting, self.syncs = self.syncs, {}
        for member_id, ticket in waiting.items():
            out.reply(ticket, RebalanceInProgress(f"group {self.group_id!r} is rebalancing; join again"))
            self._restart_timer_of(member_id, now_ms)
        self.unsynced.clear()
        self.cancel_timer(SYNC)
        self._is_initial = self.is_empty
        self.transition_to(State.PREPARING)
        if self._is_initial:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._initial_end_ms = now_ms + max(delay_ms, self.roster.rebalance_timeout_ms)
            self.has_new_member = False
            self.set_timer(JOIN, now_ms + delay_ms)
        else:
            self.set_timer(JOIN, now_ms + self.roster.rebalance_timeout_ms)
            self.complete_if_joined(out, now_ms)

    def _restart_timer_of(self, member_id: str, now_ms: int) -> None:
        """Restarts the session timeout of a member after its waiting JoinGroup or SyncGroup was answered."""
        member = self.roster.get(member_id)
        if member is not None:
            self.restart_session_timer(member, now_ms)

    def complete_if_joined(self, out: Outbox, now_ms: int) -> None:
        """Completes the join phase if all members have joined, except during the initial rebalance delay."""
        if self.state is State.PREPARING and self.has_all_joined and not self._is_initial:
            self._complete_join(out, now_ms)

    def _complete_join(self, out: Outbox, now_ms: int) -> None:
        """Starts the next generation with all members that have rejoined, and static members even if they have not.

        A static member that does not rejoin is removed when its session timeout or the sync timeout has passed.
        """
        for member in list(self.roster):
            if member.member_id not in self.joins and member.instance_id is None:
                self.log_expired(member.member_id, JOIN)
                self.remove(out, member.member_id)
        if not self.roster:
            # The timer retries until this is persisted.
            self.set_timer(JOIN, now_ms + RETRY_MS)
            out.records.append(self.record(now_ms, generation=self.generation + 1))
            return
        if not self.joins:
            self.set_timer(JOIN, now_ms + self.roster.rebalance_timeout_ms)  # no member can lead
            return
        if self.leader not in self.joins:
            self.leader = next(iter(self.joins))
        self.cancel_timer(JOIN)
        self.transition_to(State.COMPLETING)
        self.generation += 1
        self.protocol = self.roster.choose_protocol()
        self._subscribed = None
        waiting, self.joins = self.joins, {}
        for member in list(self.roster):
            if member.member_id in waiting:
                out.reply(waiting[member.member_id], self.join_response(member))
            self.roster.put(replace(member, is_new=False))
            self.restart_session_timer(member, now_ms)
        self.set_timer(SYNC, now_ms + self.roster.rebalance_timeout_ms)

    def join_response(
        self,
        member: Member,
        *,
        leader: str | None = None,
        roster: Roster | None = None,
        skip_assignment: bool = False,
    ) -> JoinGroupResponse:
        """Returns a member's JoinGroup response, which lists the members of the group only if the member is the
        leader. `leader`, `roster`: leader and members to report, if not those of the group. `skip_assignment`: the
        leader must not compute an assignment (KIP-814)."""
        leader = leader or self.leader or ""
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=leader,
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=self._member_list(roster or self.roster) if member.member_id == leader else (),
        )

    def _member_list(self, roster: Roster) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in roster
        ]

    def propagate_assignments(self, out: Outbox, shared: Sequence[SyncGroupRequestAssignment], now_ms: int) -> None:
        """Persists the leader's assignment, then answers all waiting SyncGroup requests."""
        given = {entry.member_id: entry.assignment for entry in shared}
        out.records.append(self.record(now_ms, assignments=given))
        # The set is only used in a stable group, that is, once this is persisted.
        self.unsynced = {member_id for member_id in self.roster.ids if member_id not in self.syncs}
        waiting, self.syncs = self.syncs, {}
        for member_id, ticket in waiting.items():
            out.reply(ticket, self.sync_response(given.get(member_id, b"")))
            self._restart_timer_of(member_id, now_ms)

    def sync_response(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=0, protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment
        )

    def mark_synced(self, member: Member, now_ms: int) -> None:
        """Records that a member of a stable group has received its assignment."""
        self.restart_session_timer(member, now_ms)
        self.unsynced.discard(member.member_id)
        if not self.unsynced:
            self.cancel_timer(SYNC)

    # -- timers

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        out = Outbox()
        if kind == SESSION:
            self._on_session_timeout(out, member_id, now_ms)
        elif kind == JOIN:
            self._on_join_timeout(out, now_ms)
        elif kind == SYNC:
            self._on_sync_timeout(out, now_ms)
        elif kind == BECAME_CLASSIC:
            self.loaded(now_ms)
        return out.decision()

    def _on_session_timeout(self, out: Outbox, member_id: str, now_ms: int) -> None:
        if member_id in self.pending:
            self.remove_pending_member(member_id)
            self.complete_if_joined(out, now_ms)
            return
        member = self.roster.get(member_id)
        if member is None:
            return
        if not member.is_new and (member_id in self.joins or member_id in self.syncs):
            return  # it waits for the coordinator: the session timeout restarts with the response
        self.log_expired(member_id, SESSION)
        self.remove(out, member_id)
        self.rebalance(out, now_ms)

    def _on_join_timeout(self, out: Outbox, now_ms: int) -> None:
        if self.state is not State.PREPARING:
            return
        if self._is_initial and self.has_new_member and now_ms < self._initial_end_ms:
            self.has_new_member = False
            self.set_timer(JOIN, min(now_ms + self.settings.initial_rebalance_delay_ms, self._initial_end_ms))
        else:
            self._complete_join(out, now_ms)

    def _on_sync_timeout(self, out: Outbox, now_ms: int) -> None:
        """Removes members that have not sent SyncGroup in time, so that their partitions are assigned to others."""
        if self.state is State.COMPLETING:
            lost = [member_id for member_id in self.roster.ids if member_id not in self.syncs]
        else:
            lost = [member_id for member_id in self.roster.ids if member_id in self.unsynced]
        for member_id in lost:
            self.log_expired(member_id, SYNC)
            self.remove(out, member_id)
        if lost:
            self.rebalance(out, now_ms)

    def loaded(self, now_ms: int) -> None:
        for member in self.roster:
            self.restart_session_timer(member, now_ms)
        is_too_large = len(self.roster) > self.settings.size_max  # the last ones to rejoin are refused
        # No leader: a downgraded consumer group, in which partitions of removed members are not assigned yet.
        if self.state is State.STABLE and (is_too_large or self.leader is None):
            self.prepare_rebalance(Outbox(), now_ms)  # in a stable group no request waits for a reply

    # -- records

    def record(
        self,
        now_ms: int,
        *,
        generation: int | None = None,
        roster: Roster | None = None,
        leader: str | None = None,
        assignments: Mapping[str, bytes] = MappingProxyType({}),
    ) -> StateRecord:
        """Returns the group metadata record of the current state; an argument that is given replaces the current
        value."""
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
        """Applies the group metadata record; the state becomes Stable or Empty. The record has only one protocol
        per member: members that are in memory keep all protocols that they support."""
        if value is None:
            self.cancel_timers()
            return
        known = {member.member_id: member.protocols for member in (*self.roster, *self.uncommitted_members.values())}
        roster = Roster(
            Member.from_record(entry, known.get(entry.member_id) or ((value.protocol or "", entry.subscription),))
            for entry in value.members
        )
        for member_id in self.roster.ids:
            if member_id not in roster:
                self.cancel_timer(SESSION, member_id)
        self.roster = roster
        self.uncommitted_members.clear()
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

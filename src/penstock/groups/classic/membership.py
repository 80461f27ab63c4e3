"""Membership of a classic group: members, pending member ids, waiting requests and session timeouts."""

from dataclasses import replace
from enum import StrEnum
from typing import Final

from penstock.foundation.decision import Ticket
from penstock.foundation.errors import PenstockError
from penstock.groups.classic.members import Member, Roster
from penstock.groups.errors import FencedInstanceId, IllegalGeneration, RebalanceInProgress, UnknownMemberId
from penstock.groups.group import SESSION, CoordinatorView, Group
from penstock.groups.outbox import Outbox

JOIN: Final = "join"
SYNC: Final = "sync"
"""Kind of the timer that ends the sync phase of a rebalance, in which members send SyncGroup. The timer of kind JOIN
ends the join phase."""
NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""Time, in milliseconds, after which a new member is removed if its first JoinGroup has not been answered."""
PENDING_MAX: Final = 10_000
"""Maximum number of member ids that were assigned but not used to join; above it the oldest ids are dropped."""


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """State reported for a group that does not exist."""


ALLOWED: Final = {
    State.PREPARING: (State.EMPTY, State.STABLE, State.COMPLETING),
    State.COMPLETING: (State.PREPARING,),
}
"""For the group states PREPARING and COMPLETING, the states from which they may be entered. The other states are set
only when a group metadata record is applied."""


class Membership(Group):
    def __init__(self, group_id: str, coordinator: CoordinatorView) -> None:
        super().__init__(group_id, coordinator)
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        """The protocol chosen for the current generation; None if there is none yet."""
        self.leader: str | None = None
        self.roster = Roster()
        self.pending: dict[str, None] = {}
        """Member ids that were assigned and not yet used to join (KIP-394), oldest first."""
        self.joins: dict[str, Ticket] = {}
        self.syncs: dict[str, Ticket] = {}
        """Waiting SyncGroup requests by member id; `joins` has the waiting JoinGroup requests."""
        self.unsynced: set[str] = set()
        """Ids of members of a stable group that have not fetched their assignment with SyncGroup yet."""
        self.has_new_member = False
        """Whether a member has joined since the initial rebalance delay was last extended (KIP-134)."""

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def has_all_joined(self) -> bool:
        return len(self.joins) == len(self.roster) and not self.pending

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises UnknownMemberId or FencedInstanceId unless both ids belong to the same current member."""
        if instance_id is not None:
            current_id = self.roster.by_instance.get(instance_id)
            if current_id is None:
                raise UnknownMemberId(f"group {self.group_id!r} has no member with group.instance.id {instance_id!r}")
            if current_id != member_id:
                raise FencedInstanceId(
                    f"group.instance.id {instance_id!r} belongs to {current_id!r} now, not to {member_id!r}"
                )
        if member_id not in self.roster:
            raise UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id!r}; join again")

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.group_id!r} is in generation {self.generation}, not {generation}")

    # -- joining

    def add_pending_member(self, member_id: str, session_timeout_ms: int, now_ms: int) -> None:
        """Reserves a member id that was assigned to a client, until the client joins with the id (KIP-394)."""
        if len(self.pending) >= PENDING_MAX:
            # Its client gets UnknownMemberId and asks for another id.
            self.remove_pending_member(next(iter(self.pending)))
        self.pending[member_id] = None
        self.set_timer(SESSION, now_ms + session_timeout_ms, member_id)

    def remove_pending_member(self, member_id: str) -> None:
        """Removes a reserved member id that was not used to join."""
        del self.pending[member_id]
        self.cancel_timer(SESSION, member_id)

    def add(self, member: Member, protocol_type: str, ticket: Ticket, now_ms: int) -> None:
        """Adds a new member; its JoinGroup (`ticket`) is answered when the join phase ends."""
        if not self.roster:
            self.protocol_type = protocol_type
        self.pending.pop(member.member_id, None)
        self.has_new_member = True
        self.leader = self.leader or member.member_id
        self.roster.put(replace(member, is_new=True))
        self.joins[member.member_id] = ticket
        self.set_timer(SESSION, now_ms + NEW_MEMBER_TIMEOUT_MS, member.member_id)

    def replace_static_member(self, out: Outbox, old_id: str, member: Member, now_ms: int) -> None:
        """Replaces the member id of a static member; the client with the old id is fenced (KIP-345)."""
        self._fail_waiting(out, old_id, FencedInstanceId(f"group.instance.id {member.instance_id!r} is taken over"))
        self.roster.replace(old_id, member)
        self.restart_session_timer(member, now_ms)
        if self.leader == old_id:
            self.leader = member.member_id

    # -- waiting requests

    def await_join(self, out: Outbox, member: Member, ticket: Ticket) -> None:
        """Updates a member that rejoins; its JoinGroup (`ticket`) is answered when the join phase ends."""
        self.roster.put(member)
        self._refuse_previous_request(out, self.joins, member.member_id)
        self.joins[member.member_id] = ticket

    def await_sync(self, out: Outbox, member_id: str, ticket: Ticket) -> None:
        self._refuse_previous_request(out, self.syncs, member_id)
        self.syncs[member_id] = ticket

    def _refuse_previous_request(self, out: Outbox, waiting: dict[str, Ticket], member_id: str) -> None:
        """Answers a member's waiting request with an error, because the member has sent another request."""
        older = waiting.pop(member_id, None)
        if older is not None:
            out.reply(older, RebalanceInProgress(f"member {member_id!r} has sent a newer request"))

    def on_disconnect(self, ticket: Ticket, now_ms: int) -> None:
        """Drops the waiting request of a disconnected client and restarts its session timeout; the client may rejoin.

        If the request were kept, the next generation would assign partitions to a client that does not read them.
        """
        for waiting in (self.joins, self.syncs):
            for member_id in [each for each, waiting_ticket in waiting.items() if waiting_ticket == ticket]:
                del waiting[member_id]
                member = self.roster.get(member_id)
                assert member is not None
                self.roster.put(replace(member, is_new=False))
                self.restart_session_timer(member, now_ms)

    def restart_session_timer(self, member: Member, now_ms: int) -> None:
        self.set_timer(SESSION, now_ms + member.session_timeout_ms, member.member_id)

    # -- leaving

    def refuse_waiting_requests(self, out: Outbox, now_ms: int) -> None:
        """Answers all waiting requests with RebalanceInProgress: the group becomes a consumer group (KIP-848)."""
        error = RebalanceInProgress(f"group {self.group_id!r} is changing its protocol; join again")
        for waiting in (self.joins, self.syncs):
            for member_id, ticket in waiting.items():
                out.reply(ticket, error)
                member = self.roster.get(member_id)
                assert member is not None
                self.roster.put(replace(member, is_new=False))
                self.restart_session_timer(member, now_ms)
            waiting.clear()

    def remove(self, out: Outbox, member_id: str) -> None:
        """Removes a member and answers its waiting requests with UnknownMemberId."""
        self._fail_waiting(out, member_id, UnknownMemberId(f"{member_id!r} is no longer a member; join again"))
        self.roster.remove(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.roster.ids), None)

    def _fail_waiting(self, out: Outbox, member_id: str, error: PenstockError) -> None:
        """Answers the waiting requests of a member id with an error and cancels its session timer."""
        self.cancel_timer(SESSION, member_id)
        self.unsynced.discard(member_id)
        for waiting in (self.joins, self.syncs):
            ticket = waiting.pop(member_id, None)
            if ticket is not None:
                out.reply(ticket, error)

    # -- timers and states

    def cancel_timers(self) -> None:
        """Cancels all timers of the group, which is being removed."""
        for member_id in (*self.roster.ids, *self.pending):
            self.cancel_timer(SESSION, member_id)
        self.cancel_timer(JOIN)
        self.cancel_timer(SYNC)

    def transition_to(self, state: State) -> None:
        assert self.state in ALLOWED[state], f"group {self.group_id!r} cannot go from {self.state} to {state}"
        self.state = state

"""Who is in a classic group or about to be, who waits for an answer, and until when someone may be silent."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final

from penstock.foundation.decision import Ticket
from penstock.foundation.errors import PenstockError
from penstock.foundation.timers import Timers
from penstock.groups.classic.members import Member, Roster
from penstock.groups.errors import FencedInstanceId, IllegalGeneration, RebalanceInProgress, UnknownMemberId
from penstock.groups.outbox import Outbox
from penstock.groups.settings import GroupSettings

SESSION: Final = "session"
JOIN: Final = "join"
SYNC: Final = "sync"
"""The kinds of timers: a member is silent; the group waits for members to join, or to ask for their assignments."""
NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""How long a first JoinGroup waits: a client that has hung up meanwhile comes back as yet another new member."""
PENDING_MAX: Final = 10_000
"""Member ids that were given out and not joined with; the oldest ones are forgotten."""


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """What is said of a group that is not there."""


ALLOWED: Final = {
    State.PREPARING: (State.EMPTY, State.STABLE, State.COMPLETING),
    State.COMPLETING: (State.PREPARING,),
}
"""The states that are come to by a decision, and from which; the others are come to by a record only."""


class Membership:
    def __init__(
        self, *, group_id: str, settings: Callable[[], GroupSettings], timers: Timers[tuple[str, str, str]]
    ) -> None:
        self.group_id: Final = group_id
        self._settings = settings
        self._timers = timers
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        """What members work by in this generation: the metadata that counts is what they said under this name."""
        self.leader: str | None = None
        self.roster = Roster()
        self.pending: dict[str, None] = {}
        """Member ids that were given out and have not been joined with (KIP-394), the oldest first."""
        self.joins: dict[str, Ticket] = {}
        self.syncs: dict[str, Ticket] = {}
        """Who waits for an answer, by member id."""
        self.unsynced: set[str] = set()
        """In a stable group: who has not asked for its assignment yet."""
        self.has_newcomer = False
        """Whether someone came since it was last put off to begin with those who are there (KIP-134)."""

    @property
    def settings(self) -> GroupSettings:
        return self._settings()

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def has_all_joined(self) -> bool:
        return len(self.joins) == len(self.roster) and not self.pending

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises UnknownMemberId, FencedInstanceId."""
        if instance_id is not None:
            holder = self.roster.by_instance.get(instance_id)
            if holder is None:
                raise UnknownMemberId(f"group {self.group_id!r} has no member with group.instance.id {instance_id!r}")
            if holder != member_id:
                raise FencedInstanceId(
                    f"group.instance.id {instance_id!r} is {holder!r} now, no longer {member_id!r}"
                )
        if member_id not in self.roster:
            raise UnknownMemberId(f"{member_id!r} is no member of group {self.group_id!r}; join again")

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.group_id!r} is in generation {self.generation}, not {generation}")

    # -- coming

    def expect(self, member_id: str, session_timeout_ms: int, now_ms: int) -> None:
        """A member id is given out: whoever gets it is to join with it (KIP-394)."""
        if len(self.pending) >= PENDING_MAX:
            self.forget(next(iter(self.pending)))  # it will be told that it is unknown, and ask for another id
        self.pending[member_id] = None
        self.set_timer(SESSION, now_ms + session_timeout_ms, member_id)

    def forget(self, member_id: str) -> None:
        """A member id that was given out is void."""
        del self.pending[member_id]
        self.cancel_timer(SESSION, member_id)

    def add(self, member: Member, protocol_type: str, ticket: Ticket, now_ms: int) -> None:
        """A new member, whose JoinGroup waits."""
        if not self.roster:
            self.protocol_type = protocol_type
        self.pending.pop(member.member_id, None)
        self.has_newcomer = True
        self.leader = self.leader or member.member_id
        self.roster.put(replace(member, is_new=True))
        self.joins[member.member_id] = ticket
        self.set_timer(SESSION, now_ms + NEW_MEMBER_TIMEOUT_MS, member.member_id)

    def take_over(self, out: Outbox, old_id: str, member: Member, now_ms: int) -> None:
        """A static member goes on under another member id; whoever has the old one is fenced (KIP-345)."""
        self._tell_lost(out, old_id, FencedInstanceId(f"group.instance.id {member.instance_id!r} is taken over"))
        self.roster.replace(old_id, member)
        self.heard(member, now_ms)
        if self.leader == old_id:
            self.leader = member.member_id

    # -- waiting

    def await_join(self, out: Outbox, member: Member, ticket: Ticket) -> None:
        """A member joins again, maybe with other metadata."""
        self.roster.put(member)
        self._answer_older(out, self.joins, member.member_id)
        self.joins[member.member_id] = ticket

    def await_sync(self, out: Outbox, member_id: str, ticket: Ticket) -> None:
        self._answer_older(out, self.syncs, member_id)
        self.syncs[member_id] = ticket

    def _answer_older(self, out: Outbox, waiting: dict[str, Ticket], member_id: str) -> None:
        """Nobody waits twice: a member that asks again has given up on what it asked before."""
        older = waiting.pop(member_id, None)
        if older is not None:
            out.refuse(older, RebalanceInProgress(f"member {member_id!r} has asked again"))

    def hung_up(self, ticket: Ticket, now_ms: int) -> None:
        """Someone who waited has gone. It may come back and ask again; from now on it is missed like any other.

        Else it would be let in, and the others would have to miss it before they could share out what it got.
        """
        for waiting in (self.joins, self.syncs):
            for member_id in [each for each, held in waiting.items() if held == ticket]:
                del waiting[member_id]
                member = self.roster.get(member_id)
                assert member is not None
                self.roster.put(replace(member, is_new=False))
                self.heard(member, now_ms)

    def heard(self, member: Member, now_ms: int) -> None:
        """A member has a whole session timeout from now on."""
        self.set_timer(SESSION, now_ms + member.session_timeout_ms, member.member_id)

    # -- going

    def dismiss(self, out: Outbox, now_ms: int) -> None:
        """Whoever waits is told to join again: the group is about to change its protocol (KIP-848)."""
        error = RebalanceInProgress(f"group {self.group_id!r} changes its protocol; join again")
        for waiting in (self.joins, self.syncs):
            for member_id, ticket in waiting.items():
                out.refuse(ticket, error)
                member = self.roster.get(member_id)
                assert member is not None
                self.roster.put(replace(member, is_new=False))
                self.heard(member, now_ms)
            waiting.clear()

    def remove(self, out: Outbox, member_id: str) -> None:
        """A member is gone. If it waits for something it is told so, and joins again if it is alive."""
        self._tell_lost(out, member_id, UnknownMemberId(f"{member_id!r} is no longer a member; join again"))
        self.roster.remove(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.roster.ids), None)

    def _tell_lost(self, out: Outbox, member_id: str, error: PenstockError) -> None:
        """Forget whatever a member id was waited for, and waits for."""
        self.cancel_timer(SESSION, member_id)
        self.unsynced.discard(member_id)
        for waiting in (self.joins, self.syncs):
            ticket = waiting.pop(member_id, None)
            if ticket is not None:
                out.refuse(ticket, error)

    # -- timers and states

    def set_timer(self, kind: str, at_ms: int, member_id: str = "") -> None:
        self._timers.set((self.group_id, kind, member_id), at_ms)

    def cancel_timer(self, kind: str, member_id: str = "") -> None:
        self._timers.cancel((self.group_id, kind, member_id))

    def close(self) -> None:
        """The group is no more."""
        for member_id in (*self.roster.ids, *self.pending):
            self.cancel_timer(SESSION, member_id)
        self.cancel_timer(JOIN)
        self.cancel_timer(SYNC)

    def move(self, state: State) -> None:
        assert self.state in ALLOWED[state], f"group {self.group_id!r} cannot go from {self.state} to {state}"
        self.state = state

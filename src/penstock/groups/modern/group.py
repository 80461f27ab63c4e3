"""Base class of consumer, share and streams groups: heartbeats, expiry, target assignment, description. Pure."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, Generic, Self

from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps, run_steps
from penstock.groups.errors import GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId
from penstock.groups.group import RETRY_MS, SESSION, CoordinatorView, Group
from penstock.groups.modern.members import JOINING, M, P
from penstock.groups.modern.records import Change, GroupRecords
from penstock.groups.modern.state import Draft, S
from penstock.groups.modern.target_assignment import SHORT_INTERVAL_MS, Assignments, TargetComputation
from penstock.groups.settings import ModernGroupSettings

TARGET: Final = "target"
"""Kind of the timer that runs the next time slice of the computation of a target assignment."""
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Bit set of all AclOperations that apply to groups; reported as authorized, since there is no authorizer."""


class ModernGroup(Group, Generic[M, P, S]):
    """Base class of a consumer, share or streams group: members, target assignment, and current assignments.

    Heartbeats read the persisted state and collect changes in a Draft, whose records are then persisted and applied.
    """

    kind: ClassVar[str]
    """Kind of group, one of MODERN_KINDS: its type and protocol type in ListGroups, and part of setting names."""
    title: ClassVar[str]
    """Name of this kind of group in error messages, such as "share group"."""
    state_class: ClassVar[Any]
    heartbeat_response: ClassVar[Any]
    describe_response: ClassVar[Any]
    described_group: ClassVar[Any]
    """Class of the message that describes one group in a describe response. The class of the response is
    `describe_response`."""
    no_description: ClassVar[dict[str, Any]] = {"assignor_name": ""}
    """For a describe response with an error: names and values of the fields that only this kind of group has."""

    def __init__(self, group_id: str, coordinator: CoordinatorView) -> None:
        super().__init__(group_id, coordinator)
        self.state: Final[S] = self.state_class()
        """The persisted state of the group. Read-only: only `apply_record` changes it."""
        self.records: GroupRecords[M, P] = self.state.records(group_id)
        self._target_computation = TargetComputation(self.records, lambda: self._assign(self.state.copy()))

    @classmethod
    def find(cls, coordinator: CoordinatorView, group_id: str) -> Self:
        """Returns the group with this id. Raises GroupIdNotFound if it does not exist or is not of this class."""
        group = coordinator.groups.get(group_id)
        if not isinstance(group, cls):
            why = "does not exist" if group is None else f"is not a {cls.kind} group"
            raise GroupIdNotFound(f"group {group_id!r} {why}")
        return group

    # -- queries

    @property
    def own_settings(self) -> ModernGroupSettings:
        return self.settings.by_kind[self.kind]

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def state_name(self) -> str:
        return self.state.name

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.state.subscribed()

    def member(self, member_id: str) -> M:
        """Returns a member by id. Raises UnknownMemberId."""
        member: M | None = self.state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is not a member of {self.title} {self.group_id!r}; it has to join")
        return member

    def check_size(self, member_id: str) -> None:
        """Raises GroupMaxSizeReached if `member_id` would be a new member and the group is full."""
        size_max = self.own_settings.size_max
        if member_id not in self.state.members and len(self.state.members) >= size_max:
            raise GroupMaxSizeReached(f"group {self.group_id!r} has {size_max} members, which is its limit")

    # -- description

    def describe(self, **requested: Any) -> Any:
        """Returns the description of the group. `requested`: optional fields that the request asks for."""
        members = self.state.members
        return self.described_group(
            error_code=0,
            group_id=self.group_id,
            group_state=self.state.name,
            group_epoch=self.state.epoch,
            assignment_epoch=self.state.target_epoch,
            members=[self._describe_member(members[member_id]) for member_id in sorted(members)],
            **self._description(),
            **requested,
        )

    @classmethod
    def requested_fields(cls, request: Any) -> dict[str, Any]:
        """Returns names and values of optional description fields that the request asks for."""
        return {"authorized_operations": GROUP_OPERATIONS} if request.include_authorized_operations else {}

    @classmethod
    def describe_error(cls, group_id: str, error: PenstockError) -> Any:
        """Returns a description that contains only the error, for a group that cannot be described."""
        return cls.described_group(
            error_code=error.code,
            error_message=error.message,
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            members=(),
            **cls.no_description,
        )

    @abstractmethod
    def _description(self) -> dict[str, Any]:
        """Returns those fields of the group's description that only this kind of group has."""

    @abstractmethod
    def _describe_member(self, member: M) -> Any: ...

    # -- records

    def draft(self) -> Draft[S]:
        return Draft(self.state, self.records)

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record that was persisted or is replayed; nothing else changes the group's state.

        Timers of a removed member are cancelled here, once its removal is persisted, and not when it is decided.
        """
        self.state.apply(kind, key, value)
        if kind == self.records.member_kind and value is None:
            self._on_member_removed(key.member_id)

    def _on_member_removed(self, member_id: str) -> None:
        self.cancel_timer(SESSION, member_id)

    def loaded(self, now_ms: int) -> None:
        for member in self.state.members.values():
            self.schedule_session_timeout(member, now_ms)

    def schedule_session_timeout(self, member: M, now_ms: int) -> None:
        self.set_timer(SESSION, now_ms + self.own_settings.session_timeout_ms, member.member_id)

    def tombstones(self) -> tuple[StateRecord, ...]:
        changes = [
            *self.records.member_tombstones(self.state.members),
            *self._own_tombstones(),
            *self.records.group_tombstones(),
        ]
        return tuple(map(self.records.to_record, changes))

    def _own_tombstones(self) -> Iterable[Change]:
        """Returns tombstones of records that only this kind of group has."""
        return ()

    # -- heartbeats

    def heartbeat(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        """Handles a heartbeat that `check_heartbeat` has accepted: a member joins, stays or leaves.

        Raises Kafka's errors; in that case nothing has changed.
        """
        request = command.body
        if request.member_epoch >= JOINING:
            return self._join_or_update(ticket, command, now_ms)
        response = self.heartbeat_response(
            throttle_time_ms=0,
            error_code=0,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return Decision(persist=self._leave(request, now_ms), replies=(Reply(ticket=ticket, value=response),))

    @abstractmethod
    def _join_or_update(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision: ...

    def _known_or_new_member(self, member_id: str, epoch: int) -> M:
        """Returns the member with this id, or a new member if `epoch` is JOINING; else raises UnknownMemberId."""
        if epoch != JOINING or member_id in self.state.members:
            return self.member(member_id)
        self.check_size(member_id)
        member: M = self.state.new_member(member_id)
        return member

    def _heartbeat_interval_ms(self, is_pending: bool) -> int:
        """Returns the heartbeat interval for the response, in ms; shorter while an assignment `is_pending`."""
        interval_ms = self.own_settings.heartbeat_interval_ms
        return min(interval_ms, SHORT_INTERVAL_MS) if is_pending else interval_ms

    # -- leaving

    def _leave(self, request: Any, now_ms: int) -> tuple[StateRecord, ...]:
        return self.remove_members((self.member(request.member_id),), now_ms)

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """Removes a member whose timeout has passed, or continues the computation of the target assignment."""
        if kind == TARGET:
            return self._compute_target(now_ms)
        member = self.state.members.get(member_id)
        if member is None or not self._has_expired(member, kind):
            return NOTHING
        self.log_expired(member_id, kind)
        self.set_timer(kind, now_ms + RETRY_MS, member_id)
        return Decision(persist=self.remove_members((member,), now_ms))

    def _has_expired(self, member: M, kind: str) -> bool:
        """Whether a due timer of this kind removes the member; false if the timeout does not apply any more."""
        return kind == SESSION

    def remove_members(self, leaving: Iterable[M], now_ms: int) -> tuple[StateRecord, ...]:
        """Returns the records that remove members and release their partitions.

        The next heartbeat of another member computes the target assignment, only once if several members have left.
        """
        draft = self.draft()
        draft.put(*self.records.member_tombstones([member.member_id for member in leaving]))
        return self._after_removal(draft, now_ms)

    def _after_removal(self, draft: Draft[S], now_ms: int) -> tuple[StateRecord, ...]:
        self._resolve_topics(draft, True, now_ms)
        if not draft.state.members:
            draft.put(self.records.target_epoch(draft.state.epoch, 0))
        return draft.records

    # -- topics

    def topics_changed(self, now_ms: int) -> Decision:
        """Resolves subscriptions with the new metadata image. Members learn of changes in their next heartbeats."""
        if self.is_empty or self._is_resolved():
            return NOTHING
        draft = self.draft()
        self._resolve_topics(draft, False, now_ms)
        return Decision(persist=draft.records)

    @abstractmethod
    def _is_resolved(self) -> bool:
        """Whether subscriptions are resolved to topics of the current metadata image, and the result is persisted."""

    @abstractmethod
    def _resolve_topics(self, draft: Draft[S], bump_epoch: bool, now_ms: int) -> None:
        """Resolves subscriptions to topics; bumps the group epoch if the result differs or `bump_epoch` is set."""

    # -- target assignment

    def _update_target(self, draft: Draft[S], now_ms: int) -> None:
        """Computes the target assignment for the group epoch: at once, or in time slices if the group is large."""
        state = draft.state
        if state.epoch <= state.target_epoch:
            return
        if not self._is_large(state):
            draft.put(*self._target_changes(state), self.records.target_epoch(state.epoch, now_ms))
            return
        if not state.target_epoch:
            self._start_with_empty_target(draft, now_ms)
        self.set_timer(TARGET, now_ms, if_absent=True)

    def _start_with_empty_target(self, draft: Draft[S], now_ms: int) -> None:
        """Stores a target assignment without partitions for a new group, and bumps the group epoch for the real one.
        Until that is computed, members are in the epoch of the empty target: they cannot stay in epoch 0, which means
        joining."""
        draft.put(self.records.target_epoch(draft.state.epoch, now_ms))
        self._next_epoch(draft)

    def _target_changes(self, state: S) -> Iterator[Change]:
        """Computes the target assignment; yields a change for each member whose target changes."""
        for member_id, target in run_steps(self._assign(state)).items():
            known = state.targets.get(member_id)
            if known is not target and known != target:
                yield self.records.target(member_id, target)

    def _compute_target(self, now_ms: int) -> Decision:
        """Runs the next time slice of the computation of the target assignment; returns the records to persist."""
        result = self._target_computation.run_slice(self.state, now_ms)
        if result is None:
            return NOTHING
        self.set_timer(TARGET, result.next_ms)
        return Decision(persist=tuple(map(self.records.to_record, result.changes)))

    @abstractmethod
    def _is_large(self, state: S) -> bool:
        """Whether computing the target assignment at once would block the event loop for too long."""

    @abstractmethod
    def _assign(self, state: S) -> Steps[Assignments[P]]:
        """Computes each member's target assignment; a generator of short steps. `state` must not change."""

    @abstractmethod
    def _next_epoch(self, draft: Draft[S]) -> None:
        """Adds a record to `draft` that bumps the group epoch and keeps the group's other metadata."""

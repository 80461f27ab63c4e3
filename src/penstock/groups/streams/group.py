"""A streams group (KIP-1071): assigns the tasks of a Kafka Streams application and creates its topics. Pure.

Part of the coordinator's state machine: see foundation/decision.py.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import NOTHING, ClientRequest, Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.timers import Timers
from penstock.groups.changes import Draft
from penstock.groups.commands import CreateStreamsTopics
from penstock.groups.consumer.group import REBALANCE, RETRY_MS, SESSION, TARGET
from penstock.groups.consumer.members import JOINING
from penstock.groups.errors import GroupMaxSizeReached, StreamsInvalidTopology, UnknownMemberId
from penstock.groups.group import log_expired
from penstock.groups.reconciliation import ReconciliationContext, reconcile
from penstock.groups.settings import GroupSettings
from penstock.groups.streams import records
from penstock.groups.streams.commits import check_commit, check_fetch
from penstock.groups.streams.description import describe_streams_group
from penstock.groups.streams.endpoints import endpoint_partitions
from penstock.groups.streams.heartbeat_status import is_full, statuses
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.requests import check_epoch, owned_in, task_ids, topology_record, updated
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.target import compute_assignments, is_large, new_target
from penstock.groups.streams.tasks import NO_TASKS, Role, Tasks
from penstock.groups.streams.topology import UNKNOWN, ConfiguredTopology, configure, source_topics
from penstock.groups.target_assignment import SHORT_INTERVAL_MS, TargetComputation
from penstock.wire.messages.streams_group_describe import DescribedGroup
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

DELAY: Final = "initial-delay"
"""Kind of the timer for the initial delay, in which a new group waits for more members before it assigns tasks."""
STANDBY_REPLICAS: Final = "num.standby.replicas"


class StreamsGroup:
    """One streams group: its members, their topology, the target assignment and current assignments."""

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
        self.state: Final = StreamsState()
        """The persisted state of the group. Read-only: only `apply_record` changes it."""
        self._target_computation = TargetComputation(group_id, records, self._start_assignor)
        self._configured: tuple[ClusterImage | None, object, ConfiguredTopology | None] = (None, None, None)
        """The cached result of `_configure`: metadata image and topology it was computed from, and the result."""
        self._shutdown_by: str | None = None
        """Id of the member that requested a shutdown of the whole application. Not persisted, as in Kafka."""
        self.creation_error: str | None = None
        """Why internal topics could not be created, or None. Not persisted, since creation is retried."""
        self._endpoint_epoch = 0
        """Version of the endpoint information in responses, incremented when it changes. Not persisted."""

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
        """The group state as Kafka's tools show it: Empty, NotReady, Assigning, Reconciling, Stable or Dead."""
        return self.state.name

    def subscribes_to(self, topic: str) -> bool:
        if self.is_empty or self.state.topology is None:
            return False
        return any(topic in source_topics(one) for one in self.state.topology.subtopologies)

    def check_commit(
        self, member_id: str, epoch: int, instance_id: str | None, partitions: Collection[tuple[bytes, int]]
    ) -> None:
        """Raises UnknownMemberId or StaleMemberEpoch unless the member may commit offsets."""
        check_commit(self.state, self.image, member_id, epoch, partitions)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        check_fetch(self.state, member_id, epoch)

    def describe(self) -> DescribedGroup:
        return describe_streams_group(self.group_id, self.state)

    def member(self, member_id: str) -> StreamsMember:
        """Returns a member by id. Raises UnknownMemberId."""
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is not a member of streams group {self.group_id!r}; it has to join")
        return member

    # -- records

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record that was persisted or is replayed; nothing else changes the group's state."""
        self.state.apply(kind, key, value)
        if kind == records.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT:
            member = self.state.members.get(key.member_id)
            if member is None or not member.must_revoke:
                self._timers.cancel(self._timer(REBALANCE, key.member_id))
        elif kind == records.STREAMS_GROUP_MEMBER_METADATA and value is None:
            self._timers.cancel(self._timer(SESSION, key.member_id))
            if not self.state.members:
                self._shutdown_by = None

    def loaded(self, now_ms: int) -> None:
        """Restarts the session and rebalance timeouts of all members after all records were replayed."""
        for member in self.state.members.values():
            self._schedule_session_timeout(member.member_id, now_ms)
            if member.must_revoke:
                self._schedule_rebalance_timeout(member, now_ms)

    def tombstones(self) -> tuple[StateRecord, ...]:
        changes = records.member_tombstones(self.group_id, self.state.members)
        changes += records.group_tombstones(self.group_id)
        return tuple(map(records.to_record, changes))

    # -- heartbeats

    def heartbeat(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        """Handles a heartbeat that `check_heartbeat` has accepted: a member joins, stays or leaves.

        Raises Kafka's errors; in that case nothing has changed.
        """
        if command.body.member_epoch < JOINING:
            return self._leave(ticket, command.body)
        return self._join_or_update(ticket, command, now_ms)

    def _join_or_update(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: StreamsGroupHeartbeatRequest = command.body
        draft = Draft(self.state, records.to_record)
        owned = owned_in(request)
        before = self._get_or_create_member(request, owned)
        is_first = not self.state.members
        member = updated(before, command)
        bump_epoch = member.member_id not in self.state.members or member != before
        if bump_epoch:
            draft.put(records.member_metadata(self.group_id, member))
        if request.topology is not None:
            bump_epoch |= self._update_topology(draft, request.topology, is_first)
        if draft.state.topology is None:  # its record could not be read: members send it when they join
            raise UnknownMemberId(f"the topology of streams group {self.group_id!r} is not known; join again")
        configured = self._configure(draft.state)
        if configured.invalid is not None:
            raise StreamsInvalidTopology(configured.invalid)
        self._update_epoch(draft, configured, bump_epoch)
        if is_first:
            self._start_initial_delay(draft, now_ms)
        self._update_target(draft, configured, now_ms)
        after = self._reconciled(draft, member, owned, now_ms)
        self._schedule_session_timeout(after.member_id, now_ms)
        if request.shutdown_application and self._shutdown_by is None:
            self._shutdown_by = after.member_id
        response = self._response(draft.state, request, before, after, configured)
        effects = (
            (CreateStreamsTopics(group_id=self.group_id, topics=configured.missing),) if configured.missing else ()
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),), effects=effects)

    def _get_or_create_member(self, request: StreamsGroupHeartbeatRequest, owned: Tasks | None) -> StreamsMember:
        """Returns the member that sent the heartbeat, or a new member if it joins. Raises if the sender is fenced."""
        if request.member_epoch == JOINING and request.member_id not in self.state.members:
            size_max = self.settings.streams_size_max
            if len(self.state.members) >= size_max:
                raise GroupMaxSizeReached(f"group {self.group_id!r} has {size_max} members, which is its limit")
            return StreamsMember(member_id=request.member_id)
        member = self.member(request.member_id)
        check_epoch(member, request, owned)
        return member

    def _update_topology(self, draft: Draft[StreamsState], given: Topology, is_first: bool) -> bool:
        """Stores the topology `given` if the group is empty, else compares it: an older one is ignored, another
        one raises InvalidRequest. Returns whether the group has a new topology."""
        known, wanted = self.state.topology, records.topology(self.group_id, topology_record(given))
        if known is not None:
            if records.to_record(records.topology(self.group_id, known)).value == records.to_record(wanted).value:
                return False
            if not is_first and known.epoch > given.epoch:
                return False  # the member gets the status STALE_TOPOLOGY
            if not is_first:
                raise InvalidRequest(
                    f"the topology differs from that of the members of group {self.group_id!r}; "
                    "stop all of them before you start the new version, or give it another application.id"
                )
        draft.put(wanted)
        return True

    def _configure(self, state: StreamsState) -> ConfiguredTopology:
        """Returns the group's topology configured for existing topics; cached until topology or topics change."""
        if state.topology is None:
            return UNKNOWN
        image, topology, found = self._configured
        if found is None or image is not self.image or topology is not state.topology:
            found = configure(state.topology, self.image)
            if not found.missing:
                self.creation_error = None
            self._configured = (self.image, state.topology, found)
        return found

    def _update_epoch(self, draft: Draft[StreamsState], configured: ConfiguredTopology, bump_epoch: bool) -> None:
        """Bumps the group epoch if any input of the target assignment has changed, or if `bump_epoch` is set."""
        state = draft.state
        validated = state.topology.epoch if state.topology is not None and configured.is_ready else -1
        configs = ((STANDBY_REPLICAS, str(self.settings.streams_standby_replicas)),)
        known = (state.metadata_hash, state.validated_topology_epoch, state.assignment_configs)
        if bump_epoch or known != (configured.metadata_hash, validated, configs):
            epoch = state.epoch + 1
            draft.put(records.group_metadata(self.group_id, epoch, configured.metadata_hash, validated, configs))

    def _next_epoch(self, draft: Draft[StreamsState]) -> None:
        """Bumps the group epoch and changes nothing else."""
        state = draft.state
        known = (state.metadata_hash, state.validated_topology_epoch, state.assignment_configs)
        draft.put(records.group_metadata(self.group_id, state.epoch + 1, *known))

    # -- target assignment

    def _start_initial_delay(self, draft: Draft[StreamsState], now_ms: int) -> None:
        """Delays the first assignment so that more members can join. Until then a new group has an empty target,
        since members need an epoch above 0."""
        delay_ms = self.settings.streams_initial_rebalance_delay_ms
        if delay_ms and self._timer(DELAY, "") not in self._timers:
            self._timers.set(self._timer(DELAY, ""), now_ms + delay_ms)
        if not draft.state.target_epoch and delay_ms:
            self._start_with_empty_target(draft, now_ms)

    def _start_with_empty_target(self, draft: Draft[StreamsState], now_ms: int) -> None:
        draft.put(records.target_epoch(self.group_id, draft.state.epoch, now_ms))
        self._next_epoch(draft)

    @property
    def _is_delayed(self) -> bool:
        return self._timer(DELAY, "") in self._timers

    def _update_target(self, draft: Draft[StreamsState], configured: ConfiguredTopology, now_ms: int) -> None:
        """Computes the target assignment for the group epoch: at once, or later if the group is large or new."""
        state = draft.state
        if state.epoch <= state.target_epoch or self._is_delayed:
            return
        standbys = self.settings.streams_standby_replicas
        if not is_large(state, configured, standbys):
            draft.put(*new_target(self.group_id, state, configured, standbys, now_ms))
            return
        if not state.target_epoch:
            self._start_with_empty_target(draft, now_ms)
        if self._timer(TARGET, "") not in self._timers:
            self._timers.set(self._timer(TARGET, ""), now_ms)

    def _start_assignor(self) -> Any:
        state = self.state.copy()
        return compute_assignments(state, self._configure(state), self.settings.streams_standby_replicas)

    def _compute_target(self, now_ms: int) -> Decision:
        """Runs the next time slice of the target assignment's computation."""
        result = self._target_computation.run_slice(self.state, {}, now_ms)
        if result is None:
            return NOTHING
        self._timers.set(self._timer(TARGET, ""), result.next_ms)
        return Decision(persist=tuple(map(records.to_record, result.changes)))

    def _end_initial_delay(self, now_ms: int) -> Decision:
        if self.is_empty:
            return NOTHING
        draft = Draft(self.state, records.to_record)
        self._update_target(draft, self._configure(draft.state), now_ms)
        return Decision(persist=draft.records)

    def _reconciled(
        self, draft: Draft[StreamsState], member: StreamsMember, owned: Tasks | None, now_ms: int
    ) -> StreamsMember:
        """Returns the member after one step of reconciliation with its target assignment."""
        state = draft.state
        if member.is_reconciled_to(state.target_epoch):
            return member
        context = ReconciliationContext(
            epoch=state.target_epoch,
            target=state.targets.get(member.member_id, NO_TASKS),
            is_free=lambda task: state.is_free(task, member),
            owned=owned,
        )
        before = member.current_assignment
        current = reconcile(before, context)
        if current is before:
            return member
        after = member.with_assignment(current)
        draft.put(records.current_assignment(self.group_id, after))
        if after.must_revoke:
            self._schedule_rebalance_timeout(after, now_ms)
        return after

    # -- response

    def _response(
        self,
        state: StreamsState,
        request: StreamsGroupHeartbeatRequest,
        before: StreamsMember,
        after: StreamsMember,
        configured: ConfiguredTopology,
    ) -> StreamsGroupHeartbeatResponse:
        is_behind = request.member_epoch != before.epoch or is_full(request)
        sends_tasks = is_behind or before.assigned.keys() != after.assigned.keys()
        if sends_tasks and after.user_endpoint is not None:
            self._endpoint_epoch += 1
        is_current = self._endpoint_epoch == request.endpoint_information_epoch
        endpoints = None if is_current else endpoint_partitions(state, configured, self.image)
        interval_ms = self.settings.streams_heartbeat_interval_ms
        is_pending = state.epoch > state.target_epoch or bool(configured.missing)
        return StreamsGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=min(interval_ms, SHORT_INTERVAL_MS) if is_pending else interval_ms,
            status=statuses(
                state,
                after,
                configured,
                creation_error=self.creation_error,
                is_delayed=self._is_delayed,
                shutdown_by=self._shutdown_by,
            ),
            active_tasks=task_ids(Role.ACTIVE, after.assigned.keys()) if sends_tasks else None,
            standby_tasks=task_ids(Role.STANDBY, after.assigned.keys()) if sends_tasks else None,
            warmup_tasks=() if sends_tasks else None,
            endpoint_information_epoch=self._endpoint_epoch,
            partitions_by_user_endpoint=endpoints,
        )

    # -- leaving

    def _leave(self, ticket: Ticket, request: StreamsGroupHeartbeatRequest) -> Decision:
        member = self.member(request.member_id)
        response = StreamsGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return Decision(persist=self._remove_member(member), replies=(Reply(ticket=ticket, value=response),))

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        """Removes a member whose timeout has passed, ends the initial delay, or continues to compute the target."""
        if kind == TARGET:
            return self._compute_target(now_ms)
        if kind == DELAY:
            return self._end_initial_delay(now_ms)
        member = self.state.members.get(member_id)
        if member is None or (kind == REBALANCE and not member.must_revoke):
            return NOTHING
        log_expired(self.group_id, member_id, kind)
        self._timers.set(self._timer(kind, member_id), now_ms + RETRY_MS)
        return Decision(persist=self._remove_member(member))

    def _remove_member(self, member: StreamsMember) -> tuple[StateRecord, ...]:
        """Returns the records that remove a member. The next heartbeat of another member updates the target."""
        draft = Draft(self.state, records.to_record)
        draft.put(*records.member_tombstones(self.group_id, (member.member_id,)))
        self._next_epoch(draft)
        if not draft.state.members:
            draft.put(records.target_epoch(self.group_id, draft.state.epoch, 0))
        return draft.records

    # -- topics

    def topics_changed(self, now_ms: int) -> Decision:
        """Configures the topology with the new metadata image. Members learn of changes in their next heartbeats."""
        if self.is_empty or self._configured[0] is self.image:
            return NOTHING
        draft = Draft(self.state, records.to_record)
        self._update_epoch(draft, self._configure(draft.state), False)
        return Decision(persist=draft.records)

    # -- timers

    def _timer(self, kind: str, member_id: str) -> tuple[str, str, str]:
        return (self.group_id, kind, member_id)

    def _schedule_session_timeout(self, member_id: str, now_ms: int) -> None:
        self._timers.set(self._timer(SESSION, member_id), now_ms + self.settings.streams_session_timeout_ms)

    def _schedule_rebalance_timeout(self, member: StreamsMember, now_ms: int) -> None:
        self._timers.set(self._timer(REBALANCE, member.member_id), now_ms + member.rebalance_timeout_ms)

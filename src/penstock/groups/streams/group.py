"""A streams group (KIP-1071): assigns the tasks of a Kafka Streams application and creates its topics. Pure.

Part of the coordinator's state machine: see foundation/decision.py.
"""

from typing import Any, ClassVar, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.decision import ClientRequest, Decision, Reply, Ticket
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.steps import Steps
from penstock.groups.commands import CreateStreamsTopics
from penstock.groups.errors import StreamsInvalidTopology, UnknownMemberId
from penstock.groups.group import CoordinatorView
from penstock.groups.modern.reconciliation import ReconciliationContext
from penstock.groups.modern.reconciling_group import ReconcilingGroup
from penstock.groups.modern.state import Draft
from penstock.groups.modern.target_assignment import Assignments
from penstock.groups.settings import STREAMS
from penstock.groups.streams.assignor import STICKY
from penstock.groups.streams.description import describe_member, describe_topology
from penstock.groups.streams.endpoints import endpoint_partitions
from penstock.groups.streams.heartbeat_status import is_full, statuses
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.records import StreamsRecords
from penstock.groups.streams.requests import check_epoch, owned_in, task_ids, topology_record, updated
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.target import compute_assignments, is_large
from penstock.groups.streams.tasks import NO_TASKS, Role, Task, Tasks
from penstock.groups.streams.topology import UNKNOWN, ConfiguredTopology, configure
from penstock.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from penstock.wire.messages.streams_group_describe import Member as DescribedMember
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

DELAY: Final = "initial-delay"
"""Kind of the timer that ends the initial delay, in which a new group waits for more members."""
STANDBY_REPLICAS: Final = "num.standby.replicas"
NOT_STORED: Final = 1
"""Status code for a topology description that was requested but that the broker does not store (KIP-1331)."""


class StreamsGroup(ReconcilingGroup[StreamsMember, Task, StreamsState]):
    """One streams group, with the topology of the application."""

    kind = STREAMS
    title = "streams group"
    state_class = StreamsState
    heartbeat_response = StreamsGroupHeartbeatResponse
    describe_response = StreamsGroupDescribeResponse
    described_group = DescribedGroup
    no_description: ClassVar = {"topology": None}
    records: StreamsRecords

    def __init__(self, group_id: str, coordinator: CoordinatorView) -> None:
        super().__init__(group_id, coordinator)
        self._configured: tuple[ClusterImage | None, object, ConfiguredTopology | None] = (None, None, None)
        """Cached result of `_configure`, with the metadata image and the topology that it was computed from."""
        self._shutdown_by: str | None = None
        """Id of the member that requested a shutdown of the whole application. Not persisted, as in Kafka."""
        self.creation_error: str | None = None
        """The reason why internal topics could not be created, or None. Not persisted: creation is retried."""
        self._endpoint_epoch = 0
        """Version of the endpoint information in responses, incremented when the endpoints change. Not persisted."""

    # -- queries

    def _held_since(self, member: StreamsMember, topic_id: bytes, number: int) -> int | None:
        topic = self.image.shown.get(topic_id)
        since = None
        for subtopology_id in self.state.readers.get(topic.name, ()) if topic is not None else ():
            task = Task(Role.ACTIVE, subtopology_id, number)
            since = member.assigned.get(task, member.revoking.get(task, since))
        return since

    def _description(self) -> dict[str, Any]:
        topology = self.state.topology
        return {
            "topology": describe_topology(topology) if topology is not None else None,
            "assignor_name": STICKY,
        }

    def _describe_member(self, member: StreamsMember) -> DescribedMember:
        return describe_member(member, self.state.targets.get(member.member_id, NO_TASKS))

    @classmethod
    def requested_fields(cls, request: StreamsGroupDescribeRequest) -> dict[str, Any]:
        status = {"topology_description_status": NOT_STORED} if request.include_topology_description else {}
        return {**super().requested_fields(request), **status}

    # -- heartbeats

    def _join_or_update(self, ticket: Ticket, command: ClientRequest, now_ms: int) -> Decision:
        request: StreamsGroupHeartbeatRequest = command.body
        draft = self.draft()
        owned = owned_in(request)
        before = self._known_or_new_member(request.member_id, request.member_epoch)
        check_epoch(before, request, owned)
        is_first = not self.state.members
        member = updated(before, command)
        bump_epoch = member.member_id not in self.state.members or member != before
        if bump_epoch:
            draft.put(self.records.member_metadata(member))
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
        self._update_target(draft, now_ms)
        after = self._adopt_target(draft, member, owned, now_ms)
        self.schedule_session_timeout(after, now_ms)
        if request.shutdown_application and self._shutdown_by is None:
            self._shutdown_by = after.member_id
        response = self._response(draft.state, request, before, after, configured)
        effects = (
            (CreateStreamsTopics(group_id=self.group_id, topics=configured.missing),) if configured.missing else ()
        )
        return Decision(persist=draft.records, replies=(Reply(ticket=ticket, value=response),), effects=effects)

    def _update_topology(self, draft: Draft[StreamsState], given: Topology, is_first: bool) -> bool:
        """Adds the topology `given` to `draft` and returns True. Returns False if the group already has this
        topology. If the group has members (not `is_first`) and another topology, returns False if `given` has a
        lower topology epoch, else raises InvalidRequest."""
        known, wanted, to_record = (
            self.state.topology,
            self.records.topology(topology_record(given)),
            self.records.to_record,
        )
        if known is not None:
            if to_record(self.records.topology(known)).value == to_record(wanted).value:
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
        """Returns the topology configured for the existing topics; cached until the topology or topics change."""
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
            draft.put(self.records.group_metadata(epoch, configured.metadata_hash, validated, configs))

    def _next_epoch(self, draft: Draft[StreamsState]) -> None:
        state = draft.state
        known = (state.metadata_hash, state.validated_topology_epoch, state.assignment_configs)
        draft.put(self.records.group_metadata(state.epoch + 1, *known))

    # -- target assignment

    def _start_initial_delay(self, draft: Draft[StreamsState], now_ms: int) -> None:
        """Starts the delay before the first assignment, in which more members can join. Until it ends, the group has
        a target assignment without tasks, so that its members can leave epoch 0, which means joining."""
        delay_ms = self.settings.streams_initial_rebalance_delay_ms
        if delay_ms:
            self.set_timer(DELAY, now_ms + delay_ms, if_absent=True)
            if not draft.state.target_epoch:
                self._start_with_empty_target(draft, now_ms)

    def _update_target(self, draft: Draft[StreamsState], now_ms: int) -> None:
        if not self.has_timer(DELAY):
            super()._update_target(draft, now_ms)

    def _is_large(self, state: StreamsState) -> bool:
        return is_large(state, self._configure(state), self.settings.streams_standby_replicas)

    def _assign(self, state: StreamsState) -> Steps[Assignments[Task]]:
        return compute_assignments(state, self._configure(state), self.settings.streams_standby_replicas)

    def _adopt_target(
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
        return self._reconcile(draft, member, context, now_ms)

    # -- response

    def _response(
        self,
        state: StreamsState,
        request: StreamsGroupHeartbeatRequest,
        before: StreamsMember,
        after: StreamsMember,
        configured: ConfiguredTopology,
    ) -> StreamsGroupHeartbeatResponse:
        is_behind = request.member_epoch != after.epoch or is_full(request)  # see ConsumerGroup._join_or_update
        sends_tasks = is_behind or before.assigned.keys() != after.assigned.keys()
        if sends_tasks and after.user_endpoint is not None:
            self._endpoint_epoch += 1
        is_current = self._endpoint_epoch == request.endpoint_information_epoch
        endpoints = None if is_current else endpoint_partitions(state, configured, self.image)
        is_pending = state.epoch > state.target_epoch or bool(configured.missing)
        return StreamsGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=0,
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._heartbeat_interval_ms(is_pending),
            status=statuses(
                state,
                after,
                configured,
                creation_error=self.creation_error,
                is_delayed=self.has_timer(DELAY),
                shutdown_by=self._shutdown_by,
            ),
            active_tasks=task_ids(Role.ACTIVE, after.assigned.keys()) if sends_tasks else None,
            standby_tasks=task_ids(Role.STANDBY, after.assigned.keys()) if sends_tasks else None,
            warmup_tasks=() if sends_tasks else None,
            endpoint_information_epoch=self._endpoint_epoch,
            partitions_by_user_endpoint=endpoints,
        )

    # -- leaving

    def _on_member_removed(self, member_id: str) -> None:
        super()._on_member_removed(member_id)
        if self.is_empty:
            self._shutdown_by = None

    def on_timer(self, kind: str, member_id: str, now_ms: int) -> Decision:
        if kind != DELAY or self.is_empty:
            return super().on_timer(kind, member_id, now_ms)
        draft = self.draft()
        self._update_target(draft, now_ms)
        return Decision(persist=draft.records)

    # -- topics

    def _is_resolved(self) -> bool:
        return self._configured[0] is self.image

    def _resolve_topics(self, draft: Draft[StreamsState], bump_epoch: bool, now_ms: int) -> None:
        if bump_epoch:  # a member was removed; the next heartbeat of another member configures the topology
            self._next_epoch(draft)
        else:
            self._update_epoch(draft, self._configure(draft.state), False)

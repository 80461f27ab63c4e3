"""What members of a streams group are told about their group, besides their tasks."""

from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.topology import Configured, Status
from penstock.wire.messages import streams_group_heartbeat as wire
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def is_full(request: StreamsGroupHeartbeatRequest) -> bool:
    """Whether a member says everything, as it does when it may have missed a response."""
    return request.rebalance_timeout_ms != -1 and request.active_tasks is not None


def statuses(
    state: StreamsState,
    member: StreamsMember,
    configured: Configured,
    *,
    creation_error: str | None,
    is_delayed: bool,
    shutdown_by: str | None,
) -> list[wire.Status]:
    """Everything that keeps the group from processing, in Kafka's words: some people look for them in their logs."""
    found: list[tuple[Status, str]] = []
    if state.topology is not None and member.topology_epoch < state.topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{state.topology.epoch}."
        )
        found.append((Status.STALE_TOPOLOGY, detail))
    if is_delayed:
        detail = "Assignment delayed due to the configured initial rebalance delay."
        found.append((Status.ASSIGNMENT_DELAYED, detail))
    if configured.problem is not None:
        status, detail = configured.problem
        if creation_error is not None and configured.missing:
            detail = f"{detail}; Creation failed: {creation_error}."
        found.append((status, detail))
    if shutdown_by is not None:
        detail = (
            f"Streams group member {shutdown_by} encountered a fatal error and requested a shutdown for the entire "
            "application."
        )
        found.append((Status.SHUTDOWN_APPLICATION, detail))
    return [wire.Status(status_code=code, status_detail=detail) for code, detail in found]

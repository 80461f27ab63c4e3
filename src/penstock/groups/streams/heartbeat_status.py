"""Statuses in the StreamsGroupHeartbeat response: stale topology, missing topics, shutdown, delayed assignment."""

from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.topology import ConfiguredTopology, Status
from penstock.wire.messages import streams_group_heartbeat as wire
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def is_full(request: StreamsGroupHeartbeatRequest) -> bool:
    """Whether the request contains all fields, as members send it when they may have missed a response."""
    return request.rebalance_timeout_ms != -1 and request.active_tasks is not None


def statuses(
    state: StreamsState,
    member: StreamsMember,
    configured: ConfiguredTopology,
    *,
    creation_error: str | None,
    is_delayed: bool,
    shutdown_by: str | None,
) -> list[wire.Status]:
    """Returns the statuses for a member's heartbeat response, with Kafka's texts. `is_delayed`: the initial
    rebalance delay has not passed. `shutdown_by`: id of the member that requested a shutdown of the application."""
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

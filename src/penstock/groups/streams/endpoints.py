"""Endpoints for interactive queries: which partitions each member of a streams group serves at its endpoint."""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.tasks import Role, Task, by_subtopology
from penstock.groups.streams.topology import ConfiguredTopology, source_topics
from penstock.wire.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition

TASKS_MAX: Final = 2000
"""Maximum number of tasks of members with endpoints; above it, responses omit endpoints to limit their cost."""


def endpoint_partitions(
    state: StreamsState, configured: ConfiguredTopology, image: ClusterImage
) -> list[EndpointToPartitions] | None:
    """Returns the partitions of each member with an endpoint; None if tasks cannot be assigned yet, or if these
    members have more than TASKS_MAX tasks."""
    members = [state.members[member_id] for member_id in sorted(state.members)]
    members = [member for member in members if member.user_endpoint is not None]
    if not configured.is_ready or sum(len(member.assigned) for member in members) > TASKS_MAX:
        return None
    sizes = _source_sizes(state, image)
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.user_endpoint.host, port=member.user_endpoint.port),
            active_partitions=_partitions(Role.ACTIVE, member.assigned, sizes),
            standby_partitions=_partitions(Role.STANDBY, member.assigned, sizes),
        )
        for member in members
        if member.user_endpoint is not None
    ]


def _source_sizes(state: StreamsState, image: ClusterImage) -> dict[str, list[tuple[str, int]]]:
    """Returns the name and number of partitions of each source topic, by subtopology id."""
    sizes: dict[str, list[tuple[str, int]]] = {}
    for one in state.topology.subtopologies if state.topology is not None else ():
        found = ((name, image.shown_by_name.get(name)) for name in sorted(set(source_topics(one))))
        sizes[one.subtopology_id] = [(name, len(topic.partitions)) for name, topic in found if topic is not None]
    return sizes


def _partitions(role: Role, tasks: Iterable[Task], sizes: dict[str, list[tuple[str, int]]]) -> list[TopicPartition]:
    return [
        TopicPartition(topic=name, partitions=[number for number in numbers if number < size])
        for subtopology_id, numbers in by_subtopology(role, tasks).items()
        for name, size in sizes.get(subtopology_id, ())
    ]

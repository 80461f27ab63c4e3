"""Builds the StreamsGroupDescribe response of a streams group."""

from collections.abc import Collection, Iterable

from penstock.foundation.errors import PenstockError
from penstock.groups.streams import records
from penstock.groups.streams.assignor import STICKY
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.requests import task_ids
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.tasks import NO_TASKS, Role, Task, Tasks
from penstock.wire.messages.streams_group_describe import Assignment, DescribedGroup, Member, Subtopology, Topology
from penstock.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TopicInfo


def describe_streams_group(group_id: str, state: StreamsState) -> DescribedGroup:
    return DescribedGroup(
        error_code=0,
        group_id=group_id,
        group_state=state.name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        topology=_topology(state.topology) if state.topology is not None else None,
        members=[
            _member(state.members[member_id], state.targets.get(member_id, NO_TASKS))
            for member_id in sorted(state.members)
        ],
        assignor_name=STICKY,
    )


def refused_streams_group(group_id: str, error: PenstockError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        topology=None,
        members=(),
    )


def _topology(topology: records.StreamsGroupTopologyValue) -> Topology:
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=one.subtopology_id,
                source_topics=one.source_topics,
                repartition_sink_topics=one.repartition_sink_topics,
                state_changelog_topics=_topics(one.state_changelog_topics),
                repartition_source_topics=_topics(one.repartition_source_topics),
            )
            for one in topology.subtopologies
        ],
    )


def _topics(topics: Iterable[records.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=entry.key, value=entry.value) for entry in topic.topic_configs],
        )
        for topic in topics
    ]


def _member(member: StreamsMember, target: Tasks) -> Member:
    endpoint = member.user_endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=Endpoint(host=endpoint.host, port=endpoint.port) if endpoint is not None else None,
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags],
        task_offsets=(),
        task_end_offsets=(),
        assignment=_assignment(member.assigned.keys()),
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(tasks: Collection[Task]) -> Assignment:
    return Assignment(
        active_tasks=task_ids(Role.ACTIVE, tasks), standby_tasks=task_ids(Role.STANDBY, tasks), warmup_tasks=()
    )

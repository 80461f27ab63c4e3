"""Describes the topology and the members of a streams group in the StreamsGroupDescribe response."""

from collections.abc import Collection, Iterable

from penstock.groups.streams import records
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.requests import task_ids
from penstock.groups.streams.tasks import Role, Task, Tasks
from penstock.wire.messages.streams_group_describe import Assignment, Member, Subtopology, Topology
from penstock.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TopicInfo


def describe_topology(topology: records.StreamsGroupTopologyValue) -> Topology:
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


def describe_member(member: StreamsMember, target: Tasks) -> Member:
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

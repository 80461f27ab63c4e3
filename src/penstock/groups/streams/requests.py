"""Validates and decodes StreamsGroupHeartbeat requests and their topology (KIP-1071)."""

from collections.abc import Collection, Iterable
from typing import Final

from penstock.foundation.decision import ClientRequest
from penstock.foundation.errors import InvalidRequest, InvalidTopic
from penstock.foundation.ids import INTERNAL_TOPICS, check_topic_name
from penstock.groups.errors import FencedMemberEpoch, StreamsInvalidTopology
from penstock.groups.modern.members import AWAY, JOINING
from penstock.groups.modern.requests import check_not_blank
from penstock.groups.streams import records
from penstock.groups.streams.members import Endpoint, StreamsMember
from penstock.groups.streams.tasks import Role, Task, Tasks, by_subtopology, tasks_of
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

TAGS_MAX: Final = 100
SUBTOPOLOGIES_MAX: Final = 500
TOPICS_MAX: Final = 2000
"""Maximum number of topics in one topology, summed over all its subtopologies."""


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises InvalidRequest for inconsistent or unsupported fields, StreamsInvalidTopology for a bad topology."""
    check_not_blank({"member id": request.member_id, "group id": request.group_id})
    check_not_blank({"rack id": request.rack_id, "process id": request.process_id})
    for what, given in (
        ("static membership (group.instance.id)", request.instance_id is not None),
        ("task offsets", request.task_offsets is not None or request.task_end_offsets is not None),
        ("warm-up tasks", bool(request.warmup_tasks)),
    ):
        if given:
            raise InvalidRequest(f"streams groups do not support {what} yet, nor does Kafka")
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(tasks is None for tasks in owned) and any(tasks is not None for tasks in owned):
        raise InvalidRequest("a member names its active, standby and warm-up tasks together or none of them")
    if len(request.client_tags or ()) > TAGS_MAX:
        raise InvalidRequest(f"{len(request.client_tags or ())} client tags; {TAGS_MAX} are allowed")
    if request.member_epoch == JOINING:
        _check_joining(request)
    elif request.topology is not None:
        raise InvalidRequest("a member may set its topology only when it joins")
    elif request.member_epoch < AWAY:
        raise InvalidRequest(f"member epoch {request.member_epoch}; expected {AWAY} or more")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < 0:
        raise InvalidRequest("a member that joins must set its rebalance timeout")
    if request.active_tasks or request.standby_tasks or request.warmup_tasks:
        raise InvalidRequest("a member that joins must own no tasks")
    if request.topology is None:
        raise InvalidRequest("a member that joins must set its topology")
    _check_topology(request.topology)


def _check_topology(topology: Topology) -> None:
    ids = [one.subtopology_id for one in topology.subtopologies]
    if len(ids) > SUBTOPOLOGIES_MAX:
        raise StreamsInvalidTopology(f"the topology has {len(ids)} subtopologies; {SUBTOPOLOGIES_MAX} are allowed")
    topics = sum(map(_topic_count, topology.subtopologies))
    if topics > TOPICS_MAX:
        raise StreamsInvalidTopology(f"the topology names {topics} topics; {TOPICS_MAX} are allowed")
    if len(set(ids)) != len(ids):
        raise StreamsInvalidTopology("two subtopologies have the same id")
    for one in topology.subtopologies:
        if one.source_topic_regex:
            raise InvalidRequest("streams groups do not support regular expressions for source topics yet")
        if not one.source_topics and not one.repartition_source_topics:
            raise StreamsInvalidTopology(f"subtopology {one.subtopology_id} reads no topics")
        for topic in one.state_changelog_topics:
            if topic.partitions:
                raise StreamsInvalidTopology(
                    f"changelog topic {topic.name} must not set its number of partitions, but sets {topic.partitions}"
                )
        _check_topics(one)
        _check_copartition(one)


def _topic_count(one: Subtopology) -> int:
    internal = len(one.repartition_source_topics) + len(one.state_changelog_topics)
    return len(one.source_topics) + len(one.repartition_sink_topics) + internal


def _check_topics(one: Subtopology) -> None:
    internal = (*one.repartition_source_topics, *one.state_changelog_topics)
    names = [*one.source_topics, *one.repartition_sink_topics, *(topic.name for topic in internal)]
    for name in names:
        if name in INTERNAL_TOPICS:
            raise StreamsInvalidTopology(f"{name} belongs to the broker; a topology cannot use it")
        try:
            check_topic_name(name)
        except InvalidTopic as error:
            raise StreamsInvalidTopology(error.message) from error
    for topic in internal:
        if topic.partitions < 0:
            raise StreamsInvalidTopology(f"topic {topic.name} has a negative number of partitions")


def _check_copartition(one: Subtopology) -> None:
    for group in one.copartition_groups:
        for indexes, topics in (
            (group.source_topics, len(one.source_topics)),
            (group.source_topic_regex, 0),
            (group.repartition_source_topics, len(one.repartition_source_topics)),
        ):
            if not all(0 <= index < topics for index in indexes):
                raise StreamsInvalidTopology(
                    f"a copartition group of subtopology {one.subtopology_id} names a topic that it does not read"
                )


def check_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest, owned: Tasks | None) -> None:
    """Raises FencedMemberEpoch unless the request has the member's current epoch. The previous epoch is accepted
    if the member owns only tasks assigned to it: the response with the current epoch may have been lost."""
    epoch = request.member_epoch
    if epoch in (JOINING, member.epoch):
        return
    may_have_missed = epoch == member.previous_epoch and owned is not None and owned <= member.assigned.keys()
    if epoch > member.epoch or not may_have_missed:
        raise FencedMemberEpoch(
            f"member {member.member_id} is in epoch {member.epoch}, not {epoch}: it has to give up its tasks and join"
        )


def owned_in(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """Returns the tasks that the member reports as owned; None if the request does not contain them."""
    if request.active_tasks is None or request.standby_tasks is None:
        return None
    return tasks_of(Role.ACTIVE, request.active_tasks) | tasks_of(Role.STANDBY, request.standby_tasks)


def updated(member: StreamsMember, command: ClientRequest) -> StreamsMember:
    """Returns the member updated with the fields that the request contains."""
    request: StreamsGroupHeartbeatRequest = command.body
    endpoint, tags = request.user_endpoint, request.client_tags
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=member.user_endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=member.client_tags if tags is None else tuple(sorted((tag.key, tag.value) for tag in tags)),
    )


def topology_record(topology: Topology) -> records.StreamsGroupTopologyValue:
    """Returns the record value for a topology, sorted by id and name, so that equal topologies have equal records."""
    return records.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            _subtopology_record(one) for one in sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
        ],
    )


def _subtopology_record(one: Subtopology) -> records.Subtopology:
    """Returns the record of a subtopology. Source topics stay in order: copartition groups refer to their indexes."""
    return records.Subtopology(
        subtopology_id=one.subtopology_id,
        source_topics=tuple(one.source_topics),
        source_topic_regex=(),
        state_changelog_topics=_topic_records(sorted(one.state_changelog_topics, key=lambda topic: topic.name)),
        repartition_sink_topics=tuple(sorted(one.repartition_sink_topics)),
        repartition_source_topics=_topic_records(one.repartition_source_topics),
        copartition_groups=[
            records.CopartitionGroup(
                source_topics=tuple(group.source_topics),
                source_topic_regex=(),
                repartition_source_topics=tuple(group.repartition_source_topics),
            )
            for group in one.copartition_groups
        ],
    )


def _topic_records(topics: Iterable[TopicInfo]) -> list[records.TopicInfo]:
    return [
        records.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                records.KeyValue(key=key, value=value)
                for key, value in sorted((entry.key, entry.value) for entry in topic.topic_configs)
            ],
        )
        for topic in topics
    ]


def task_ids(role: Role, tasks: Collection[Task]) -> list[TaskIds]:
    """Returns those of `tasks` that have this role, in the form that responses contain."""
    return [
        TaskIds(subtopology_id=subtopology_id, partitions=numbers)
        for subtopology_id, numbers in by_subtopology(role, tasks).items()
    ]

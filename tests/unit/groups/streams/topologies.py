"""Topologies and members for tests of streams groups."""

from typing import Any

from penstock.cluster.image import ClusterImage
from penstock.groups.streams.records import StreamsGroupTopologyValue
from penstock.groups.streams.requests import topology_record
from penstock.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.simulation.group_machines import GROUP, StreamsMachine, image_of, settings_of, topic_of

REBALANCE_MS = 60_000


def internal(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    entries = [KeyValue(key=key, value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=-1, topic_configs=entries)


def part(subtopology_id: str, **values: Any) -> Subtopology:
    """A subtopology; what is not given is empty."""
    given: dict[str, Any] = {
        "source_topics": (),
        "source_topic_regex": (),
        "state_changelog_topics": (),
        "repartition_sink_topics": (),
        "repartition_source_topics": (),
        "copartition_groups": (),
    }
    return Subtopology(subtopology_id=subtopology_id, **{**given, **values})


def together(*sources: int, repartitioned: tuple[int, ...] = ()) -> CopartitionGroup:
    return CopartitionGroup(source_topics=sources, source_topic_regex=(), repartition_source_topics=repartitioned)


def topology(*parts: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=parts)


COUNT = topology(
    part("0", source_topics=("words",), repartition_sink_topics=("app-r",)),
    part("1", repartition_source_topics=(internal("app-r"),), state_changelog_topics=(internal("app-c"),)),
)
"""Counts words: a repartition, and state."""


def persisted(given: Topology) -> StreamsGroupTopologyValue:
    return topology_record(given)


def image(**sizes: int) -> ClusterImage:
    """Topics by their names, with underscores for dashes, and the number of their partitions."""
    return image_of(*(topic_of(name.replace("_", "-"), size) for name, size in sizes.items()))


READY = image(words=4, app_r=4, app_c=4)
"""All that COUNT needs."""


def beat(member_id: str, epoch: int, **values: Any) -> StreamsGroupHeartbeatRequest:
    given: dict[str, Any] = {"group_id": GROUP, "endpoint_information_epoch": 0}
    return StreamsGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **{**given, **values})


def joining(member_id: str, given: Topology = COUNT, **values: Any) -> StreamsGroupHeartbeatRequest:
    said: dict[str, Any] = {
        "rebalance_timeout_ms": REBALANCE_MS,
        "topology": given,
        "active_tasks": (),
        "standby_tasks": (),
        "warmup_tasks": (),
        "process_id": f"process of {member_id}",
    }
    return beat(member_id, 0, **{**said, **values})


def owning(
    member_id: str, epoch: int, answer: StreamsGroupHeartbeatResponse, **values: Any
) -> StreamsGroupHeartbeatRequest:
    """A heartbeat of a member that owns its assigned tasks."""
    said = {"active_tasks": answer.active_tasks, "standby_tasks": answer.standby_tasks, "warmup_tasks": ()}
    return beat(member_id, epoch, **{**said, **values})


def tasks_in(answer: StreamsGroupHeartbeatResponse) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The active and the standby tasks that are assigned to a member."""
    assert answer.active_tasks is not None
    assert answer.standby_tasks is not None
    active = {entry.subtopology_id: list(entry.partitions) for entry in answer.active_tasks}
    return active, {entry.subtopology_id: list(entry.partitions) for entry in answer.standby_tasks}


def statuses_in(answer: StreamsGroupHeartbeatResponse) -> list[int]:
    return [status.status_code for status in answer.status or ()]


def machine_of(shown: ClusterImage, **settings: int) -> StreamsMachine:
    """A group without the delay of new groups, unless it is given."""
    values = {"group_streams_initial_rebalance_delay_ms": 0, **settings}
    return StreamsMachine(shown, settings_of(**values))

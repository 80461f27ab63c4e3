"""Deciding on topics: what must be written to the store to make, grow, change or delete one. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.coordination.store import ABSENT, Check, Delete, Op, Put
from penstock.foundation.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    TopicExists,
)
from penstock.foundation.ids import check_topic_name

RESERVED_OFFSETS: Final = 1 << 24
"""Offsets that a memory partition reserves at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    partitions: int
    replication_factor: int
    partitions_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as someone asks for it: -1 stands for the default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


def plan_create(image: ClusterImage, wanted: NewTopic, topic_id: bytes, defaults: Defaults) -> list[Op]:
    """The writes that make a topic. Raises what Kafka would answer."""
    check_topic_name(wanted.name)
    if wanted.name in image.by_name:
        raise TopicExists(f"topic {wanted.name!r} exists already")
    _check_collision(image, wanted.name)
    assignment = _assignment(image, wanted, defaults)
    in_memory = wanted.configs.get("storage") == "memory"
    states = {number: _fresh(replicas, in_memory) for number, replicas in assignment.items()}
    return [
        Put(keys.topic_name(wanted.name), keys.encode(keys.topic(topic_id)), ABSENT),
        Put(keys.topic(topic_id), _topic_value(wanted.name, wanted.configs), ABSENT),
        *(Put(keys.partition(topic_id, number), state.dump(), ABSENT) for number, state in states.items()),
    ]


def _topic_value(name: str, configs: Mapping[str, str]) -> bytes:
    return keys.encode({"name": name, "configs": dict(configs)})


def _fresh(replicas: Sequence[int], in_memory: bool) -> PartitionState:
    return PartitionState(
        replicas=tuple(replicas),
        leader=replicas[0],
        leader_epoch=0,
        isr=tuple(replicas),
        reserved_to=RESERVED_OFFSETS if in_memory else 0,
    )


def _check_collision(image: ClusterImage, name: str) -> None:
    """Kafka's metrics write `.` as `_`, so it refuses two names that differ in nothing else."""
    flat = name.replace(".", "_")
    if "." not in name and "_" not in name:
        return
    for known in image.by_name:
        if known.replace(".", "_") == flat:
            raise InvalidTopic(f"topic {name!r} collides with {known!r}: they differ only in '.' and '_'")


def _assignment(image: ClusterImage, wanted: NewTopic, defaults: Defaults) -> dict[int, Sequence[int]]:
    if wanted.assignments:
        if wanted.partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequest("give an assignment, or a number of partitions and replicas, not both")
        _check_assignment(image, wanted.assignments, first=0)
        _check_count(len(wanted.assignments), defaults)
        return dict(sorted(wanted.assignments.items()))
    count = defaults.partitions if wanted.partitions == -1 else wanted.partitions
    _check_count(count, defaults)
    factor = defaults.replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    return dict(enumerate(place(image, count, factor)))


def _check_count(count: int, defaults: Defaults) -> None:
    if not 1 <= count <= defaults.partitions_max:
        raise InvalidPartitions(f"a topic has 1 to {defaults.partitions_max} partitions, asked for {count}")


def place(image: ClusterImage, count: int, factor: int) -> list[tuple[int, ...]]:
    """Replicas for `count` new partitions, spread over the brokers there are."""
    brokers = sorted(image.brokers)
    if factor < 1:
        raise InvalidReplicationFactor(f"a partition has at least 1 replica, asked for {factor}")
    if factor > len(brokers):
        raise InvalidReplicationFactor(f"{factor} replicas need {factor} brokers, there are {len(brokers)}")
    return [tuple(brokers[(number + i) % len(brokers)] for i in range(factor)) for number in range(count)]


def _check_assignment(image: ClusterImage, assignments: Mapping[int, Sequence[int]], first: int) -> None:
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise InvalidReplicaAssignment(
            f"partitions are numbered from {first} on without gaps, got {sorted(assignments)}"
        )
    sizes = {len(replicas) for replicas in assignments.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise InvalidReplicaAssignment("every partition needs the same number of replicas, at least 1")
    for number, replicas in assignments.items():
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"partition {number} names a broker twice")
        unknown = [node for node in replicas if node not in image.brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"partition {number} names brokers that are not there: {unknown}")


def plan_grow(
    image: ClusterImage, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, defaults: Defaults
) -> list[Op]:
    """The writes that give a topic more partitions."""
    have = len(topic.partitions)
    if count <= have:
        raise InvalidPartitions(f"topic {topic.name!r} has {have} partitions; a larger number is needed, got {count}")
    _check_count(count, defaults)
    factor = len(topic.partitions[0].replicas)
    in_memory = topic.configs.get("storage") == "memory"
    if assignments is None:
        added = dict(enumerate(place(image, count - have, factor), start=have))
    else:
        if len(assignments) != count - have:
            raise InvalidReplicaAssignment(
                f"{count - have} partitions are added, the assignment names {len(assignments)}"
            )
        added = {have + number: tuple(replicas) for number, replicas in enumerate(assignments)}
        _check_assignment(image, added, first=have)
        if any(len(replicas) != factor for replicas in added.values()):
            raise InvalidReplicaAssignment(f"topic {topic.name!r} has {factor} replicas a partition")
    return [
        Check(keys.topic(topic.topic_id), topic.version),
        *(
            Put(keys.partition(topic.topic_id, number), _fresh(replicas, in_memory).dump(), ABSENT)
            for number, replicas in added.items()
        ),
    ]


def plan_configure(topic: Topic, configs: Mapping[str, str]) -> list[Op]:
    """The write that gives a topic these settings and no others."""
    return [Put(keys.topic(topic.topic_id), _topic_value(topic.name, configs), topic.version)]


def plan_delete(topic: Topic, name_version: int) -> list[Op]:
    """The writes that delete a topic."""
    return [
        Delete(keys.topic_name(topic.name), name_version),
        Delete(keys.topic(topic.topic_id), topic.version),
        *(
            Delete(keys.partition(topic.topic_id, number), state.version)
            for number, state in topic.partitions.items()
        ),
    ]


def plan_new_epochs(image: ClusterImage, node_id: int) -> list[Op]:
    """The writes with which a broker that starts takes up its partitions under new leader epochs."""
    return [
        Put(keys.partition(topic.topic_id, number), _restarted(state).dump(), state.version)
        for topic in image.topics.values()
        for number, state in topic.partitions.items()
        if state.leader == node_id
    ]


def _restarted(state: PartitionState) -> PartitionState:
    state = replace(state, leader_epoch=state.leader_epoch + 1)
    if not state.reserved_to:
        return state
    return replace(state, reserved_from=state.reserved_to, reserved_to=state.reserved_to + RESERVED_OFFSETS)


def plan_reserve(image: ClusterImage, topic_id: bytes, number: int, beyond: int) -> list[Op]:
    """The write that lets a memory partition give offsets past `beyond`."""
    topic = image.topics.get(topic_id)
    if topic is None or number not in topic.partitions or topic.partitions[number].reserved_to > beyond:
        return []
    state = topic.partitions[number]
    return [
        Put(
            keys.partition(topic_id, number),
            replace(state, reserved_to=beyond + RESERVED_OFFSETS).dump(),
            state.version,
        )
    ]

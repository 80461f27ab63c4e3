"""Configures the topology of a Kafka Streams application: number of tasks, and internal topics to create. Pure.

A topology names the topics that each subtopology reads, and the internal topics of the application: repartition
topics, which one subtopology writes and another one reads, and changelogs, which hold the state of a subtopology. The
broker creates the internal topics and decides their number of partitions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.cluster.image import ClusterImage
from penstock.groups.consumer.subscriptions import metadata_hash
from penstock.groups.errors import StreamsInvalidTopology
from penstock.groups.streams.records import CopartitionGroup, StreamsGroupTopologyValue, Subtopology, TopicInfo

TASKS_MAX: Final = 10_000
"""Maximum number of active tasks of a group. Kafka has no such limit; here one event loop assigns all tasks."""
NAMES_SHOWN: Final = 3


class Status(IntEnum):
    """Status codes in the StreamsGroupHeartbeat response."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Problem(NamedTuple):
    """Status code and description of the reason why tasks cannot be assigned yet."""

    status: Status
    detail: str


class InternalTopic(NamedTuple):
    """A repartition or changelog topic that the broker has to create."""

    name: str
    partitions: int
    replication_factor: int
    """Replication factor; 0 or -1 means the broker's default."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """A topology checked against the existing topics: its number of tasks, or the reason why there are no tasks."""

    task_counts: Mapping[str, int]
    """Number of tasks by subtopology id; empty if tasks cannot be assigned yet."""
    stateful: frozenset[str]
    """Ids of the subtopologies with state, which may have standby tasks."""
    metadata_hash: int
    """Hash that changes when a topic of the topology is created, deleted or gets more partitions."""
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics that do not exist and have to be created."""
    problem: Problem | None = None
    invalid: str | None = None
    """The reason why the topology itself is invalid, whichever topics exist; None if it is valid."""

    @property
    def is_ready(self) -> bool:
        return self.problem is None and self.invalid is None


UNKNOWN: Final = ConfiguredTopology(
    task_counts={}, stateful=frozenset(), metadata_hash=0, invalid="the topology is not known"
)
"""Configured topology, without tasks, of a group whose topology record could not be read."""


def source_topics(subtopology: Subtopology) -> Iterable[str]:
    """Yields the names of all topics that a subtopology reads."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def required_topics(topology: StreamsGroupTopologyValue) -> frozenset[str]:
    """Returns the names of all topics in a topology."""
    names: set[str] = set()
    for subtopology in topology.subtopologies:
        names.update(source_topics(subtopology))
        names.update(topic.name for topic in subtopology.state_changelog_topics)
    return frozenset(names)


def configure(topology: StreamsGroupTopologyValue, image: ClusterImage) -> ConfiguredTopology:
    """Returns the topology configured for the topics that exist in `image`, or the problem that prevents it."""
    nothing = ConfiguredTopology(
        task_counts={},
        stateful=frozenset(one.subtopology_id for one in topology.subtopologies if one.state_changelog_topics),
        metadata_hash=metadata_hash(required_topics(topology), image),
    )
    try:
        counts = _PartitionCounts(topology, image)
        task_counts = {
            one.subtopology_id: max(counts[name] for name in source_topics(one)) for one in topology.subtopologies
        }
        missing = counts.missing_topics(task_counts)
    except _NotReady as found:
        return replace(nothing, problem=found.problem)
    except StreamsInvalidTopology as error:
        return replace(nothing, invalid=error.message)
    total = sum(task_counts.values())
    if total > TASKS_MAX:
        return replace(nothing, invalid=f"the topology has {total} tasks; {TASKS_MAX} are allowed")
    if missing:
        detail = f"Internal topics are missing: {_abbreviate([topic.name for topic in missing])}"
        return replace(nothing, missing=missing, problem=Problem(Status.MISSING_INTERNAL_TOPICS, detail))
    return replace(nothing, task_counts=task_counts)


class _NotReady(Exception):
    """Raised if topics are missing or do not have the partitions that the topology needs."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status, detail)


class _PartitionCounts:
    """Number of partitions of every topic that a topology reads, including internal topics that are to be created."""

    def __init__(self, topology: StreamsGroupTopologyValue, image: ClusterImage) -> None:
        self._topology = topology
        self._existing = {
            name: len(topic.partitions)
            for name in required_topics(topology)
            if (topic := image.shown_by_name.get(name)) is not None
        }
        missing = sorted(
            name for one in topology.subtopologies for name in one.source_topics if name not in self._existing
        )
        if missing:
            raise _NotReady(Status.MISSING_SOURCE_TOPICS, f"Source topics {_abbreviate(missing)} are missing.")
        self._decided = self._repartition_counts()
        self._copartition()

    def __getitem__(self, name: str) -> int:
        """Returns the partition count of a topic: the actual count if it exists, else the count to create it with."""
        return self._existing.get(name) or self._decided[name]

    def missing_topics(self, task_counts: Mapping[str, int]) -> tuple[InternalTopic, ...]:
        """Returns the internal topics to create. Raises _NotReady if an existing one has another partition count."""
        missing: dict[str, InternalTopic] = {}
        for one in self._topology.subtopologies:
            needed = [(topic, self._decided[topic.name]) for topic in one.repartition_source_topics]
            needed += [(topic, task_counts[one.subtopology_id]) for topic in one.state_changelog_topics]
            for topic, partitions in needed:
                existing = self._existing.get(topic.name)
                if existing is None:
                    missing[topic.name] = _internal_topic(topic, partitions)
                elif existing != partitions:
                    raise _NotReady(
                        Status.INCORRECTLY_PARTITIONED_TOPICS,
                        f"Existing topic {topic.name} has different number of partitions: "
                        f"expected {partitions}, found {existing}",
                    )
        return tuple(missing[name] for name in sorted(missing))

    def _repartition_counts(self) -> dict[str, int]:
        """Returns the partition count of each repartition topic: the count in the topology or, if that is 0, the
        largest count of the source topics of the subtopology that writes to it."""
        fixed = {
            topic.name: topic.partitions
            for one in self._topology.subtopologies
            for topic in one.repartition_source_topics
            if topic.partitions > 0
        }
        decided = dict(fixed)
        left = [one for one in self._topology.subtopologies if one.repartition_sink_topics]
        while left:
            stuck = []
            for one in left:
                count = self._largest_source(one, decided)
                if count is None:
                    stuck.append(one)
                    continue
                for name in one.repartition_sink_topics:
                    decided.setdefault(name, count)
            if len(stuck) == len(left):
                raise StreamsInvalidTopology(
                    "the repartition topics of the topology depend on each other in a circle: "
                    "the number of their partitions cannot be decided"
                )
            left = stuck
        unwritten = sorted(
            topic.name
            for one in self._topology.subtopologies
            for topic in one.repartition_source_topics
            if topic.name not in decided
        )
        if unwritten:
            raise StreamsInvalidTopology(f"no subtopology writes the repartition topics {_abbreviate(unwritten)}")
        return decided

    def _largest_source(self, subtopology: Subtopology, decided: Mapping[str, int]) -> int | None:
        """Returns the largest partition count of the subtopology's source topics; None if no count is known yet."""
        known = [self._existing[name] for name in subtopology.source_topics]
        known += [decided[topic.name] for topic in subtopology.repartition_source_topics if topic.name in decided]
        return max(known, default=None)

    def _copartition(self) -> None:
        """Gives topics of a copartition group equal partition counts. Raises _NotReady if that is impossible."""
        fixed = {
            topic.name
            for one in self._topology.subtopologies
            for topic in one.repartition_source_topics
            if topic.partitions > 0
        }
        for one in self._topology.subtopologies:
            for group in one.copartition_groups:
                self._equalize_partitions(_copartitioned(one, group), fixed)

    def _equalize_partitions(self, names: frozenset[str], fixed: set[str]) -> None:
        repartitioned = sorted(name for name in names if name in self._decided)
        counts = {name: self._existing[name] for name in sorted(names) if name not in self._decided}
        counts = counts or {name: self._decided[name] for name in repartitioned if name in fixed}
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{name}={count}" for name, count in counts.items())
            raise _NotReady(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{shown}]",
            )
        target = next(iter(counts.values()), None)
        if target is None:
            target = max((self._decided[name] for name in repartitioned), default=0)
        for name in repartitioned:
            if name in fixed and self._decided[name] != target:
                raise _NotReady(
                    Status.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{self._decided[name]}] of repartition topic [{name}] "
                    f"doesn't match number of partitions [{target}] of the source topic.",
                )
            self._decided[name] = target


def _copartitioned(subtopology: Subtopology, group: CopartitionGroup) -> frozenset[str]:
    sources = [subtopology.source_topics[index] for index in group.source_topics]
    repartitioned = [subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics]
    return frozenset(sources + repartitioned)


def _internal_topic(topic: TopicInfo, partitions: int) -> InternalTopic:
    configs = {entry.key: entry.value for entry in topic.topic_configs}
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _abbreviate(names: Sequence[str]) -> str:
    rest = len(names) - NAMES_SHOWN
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {rest} additional topics" if rest > 0 else shown

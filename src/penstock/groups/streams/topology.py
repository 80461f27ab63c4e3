"""Configures the topology of a Kafka Streams application: number of tasks, and internal topics to create. Pure.

A topology names the topics that each subtopology reads, and the internal topics of the application: repartition
topics, which one subtopology writes and another one reads, and changelogs, which hold the state of a subtopology. The
broker decides the number of partitions of internal topics and creates them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.cluster.image import ClusterImage
from penstock.groups.consumer.subscriptions import metadata_hash
from penstock.groups.streams.errors import StreamsInvalidTopology
from penstock.groups.streams.records import CopartitionGroup, StreamsGroupTopologyValue, Subtopology, TopicInfo

TASKS_MAX: Final = 10_000
"""The most tasks of one group without standbys. Kafka has no limit; here one event loop assigns them."""
NAMES_SHOWN: Final = 3


class Status(IntEnum):
    """A status in the heartbeat response, by its number."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Problem(NamedTuple):
    """Why tasks cannot be assigned yet."""

    status: Status
    detail: str


class InternalTopic(NamedTuple):
    """A repartition or changelog topic that the broker creates."""

    name: str
    partitions: int
    replication_factor: int
    """0 or -1: the broker's default."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """A topology with the existing topics: the number of tasks, or the reason why there are none."""

    task_counts: Mapping[str, int]
    """By subtopology; empty if there is a problem."""
    stateful: frozenset[str]
    """The subtopologies with state, which may have standby tasks."""
    metadata_hash: int
    """Changes when one of the topics is created, deleted or gets more partitions."""
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics to create."""
    problem: Problem | None = None
    invalid: str | None = None
    """Why the topology is invalid with any topics."""

    @property
    def is_ready(self) -> bool:
        return self.problem is None and self.invalid is None


UNKNOWN: Final = ConfiguredTopology(
    task_counts={}, stateful=frozenset(), metadata_hash=0, invalid="the topology is not known"
)
"""Of a group whose topology could not be read."""


def source_topics(subtopology: Subtopology) -> Iterable[str]:
    """Yields all topics that a subtopology reads."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def required_topics(topology: StreamsGroupTopologyValue) -> frozenset[str]:
    """Returns all topics that a topology names."""
    names: set[str] = set()
    for subtopology in topology.subtopologies:
        names.update(source_topics(subtopology))
        names.update(topic.name for topic in subtopology.state_changelog_topics)
    return frozenset(names)


def configure(topology: StreamsGroupTopologyValue, image: ClusterImage) -> ConfiguredTopology:
    """Returns the topology configured for the existing topics."""
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
    """The topics are not as the topology needs them."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status, detail)


class _PartitionCounts:
    """The number of partitions of every topic that a topology reads, existing or decided here."""

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
        """Returns the number of partitions; the existing number takes precedence over the one in the topology."""
        return self._existing.get(name) or self._decided[name]

    def missing_topics(self, task_counts: Mapping[str, int]) -> tuple[InternalTopic, ...]:
        """Returns the internal topics to create. Raises _NotReady if an existing one has the wrong partitions."""
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
        """Decides the partitions of repartition topics: as given, else as the largest source of their writers."""
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
        """Returns None if the number of partitions is not known for any source."""
        known = [self._existing[name] for name in subtopology.source_topics]
        known += [decided[topic.name] for topic in subtopology.repartition_source_topics if topic.name in decided]
        return max(known, default=None)

    def _copartition(self) -> None:
        """Gives topics that are joined the same number of partitions; raises _NotReady if that is not possible."""
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

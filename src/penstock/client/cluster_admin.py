"""Cluster administration: describe brokers, reassign partitions, elect leaders, configs. For topics, see admin.py."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Final, TypeVar

from penstock.client.cluster import KafkaClient, Target
from penstock.client.configs import ConfigChange, Resource, alter_configs, describe_configs
from penstock.client.errors import ConnectionFailed, ServerError, refusal
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

AT_ONCE: Final = 1000
"""Maximum number of partitions or topics in one request; well below the request size limit of a broker."""
Failures = dict[TopicPartition, ServerError]
T = TypeVar("T")


class Election(IntEnum):
    """The leader to elect: the preferred replica, or any live replica (which may lack messages)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller: int
    brokers: Mapping[int, BrokerInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition that is being reassigned to other replicas."""

    tp: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ClusterAdmin:
    """Administration of brokers and replicas over the Kafka protocol."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def describe(self) -> ClusterDescription:
        """Returns the live brokers and the controller."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response: DescribeClusterResponse = await self._client.request_checked(Target.ANY, request, "the cluster")
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller=response.controller_id,
            brokers={
                found.broker_id: BrokerInfo(
                    node_id=found.broker_id, host=found.host, port=found.port, rack=found.rack
                )
                for found in sorted(response.brokers, key=lambda found: found.broker_id)
            },
        )

    # -- replicas

    async def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_resize: bool = True
    ) -> Failures:
        """Reassigns partitions to these replicas; None cancels a reassignment. Returns the errors by partition.

        `may_resize`: whether the replication factor may change (KIP-860).
        """
        failures: Failures = {}
        for tps in _portions(wanted):
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._client.request_timeout_ms,
                allow_replication_factor_change=may_resize,
                topics=[
                    ReassignableTopic(
                        name=topic,
                        partitions=[
                            ReassignablePartition(
                                partition_index=number, replicas=wanted[TopicPartition(topic, number)]
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in _by_topic(tps)
                ],
            )
            response: AlterPartitionReassignmentsResponse
            response = await self._client.request_checked(Target.CONTROLLER, request, "the reassignment")
            failures |= {
                tp: refusal(entry.error_code, f"partition {tp}", _of(tp, entry.error_message))
                for topic in response.responses
                for entry in topic.partitions
                if entry.error_code != ErrorCode.NONE
                for tp in [TopicPartition(topic.name, entry.partition_index)]
            }
        return failures

    async def reassignments(
        self, tps: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Returns the ongoing reassignments of `tps`; of all partitions if None."""
        found: dict[TopicPartition, Reassignment] = {}
        for some in [None] if tps is None else _portions(tps):
            topics = None
            if some is not None:
                topics = [
                    ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in _by_topic(some)
                ]
            request = ListPartitionReassignmentsRequest(timeout_ms=self._client.request_timeout_ms, topics=topics)
            response: ListPartitionReassignmentsResponse
            response = await self._client.request_checked(Target.CONTROLLER, request, "the reassignments")
            found |= {
                tp: Reassignment(
                    tp=tp,
                    replicas=tuple(entry.replicas),
                    adding=tuple(entry.adding_replicas),
                    removing=tuple(entry.removing_replicas),
                )
                for topic in response.topics
                for entry in topic.partitions
                for tp in [TopicPartition(topic.name, entry.partition_index)]
            }
        return found

    async def elect_leaders(
        self, tps: Collection[TopicPartition] | None = None, election: Election = Election.PREFERRED
    ) -> dict[TopicPartition, ServerError | None]:
        """Elects leaders of `tps` (None: wherever one is needed). Returns each partition's error; None on success."""
        results: dict[TopicPartition, ServerError | None] = {}
        for some in [None] if tps is None else _portions(tps):
            topics = None
            if some is not None:
                topics = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in _by_topic(some)]
            request = ElectLeadersRequest(
                election_type=election, topic_partitions=topics, timeout_ms=self._client.request_timeout_ms
            )
            response: ElectLeadersResponse
            response = await self._client.request_checked(Target.CONTROLLER, request, "the election")
            results |= {
                tp: refusal(entry.error_code, f"partition {tp}", _of(tp, entry.error_message))
                if entry.error_code
                else None
                for topic in response.replica_election_results
                for entry in topic.partition_result
                for tp in [TopicPartition(topic.topic, entry.partition_id)]
            }
        return results

    async def sizes(
        self, node_ids: Iterable[int], tps: Collection[TopicPartition] | None = None
    ) -> dict[int, dict[TopicPartition, int]]:
        """Returns the bytes of each replica, by broker; omits brokers that do not answer."""
        topics = None
        if tps is not None:
            topics = [DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in _by_topic(tps)]
        found: dict[int, dict[TopicPartition, int]] = {}
        for node_id in node_ids:
            try:
                response: DescribeLogDirsResponse = await self._client.request(
                    node_id, DescribeLogDirsRequest(topics=topics)
                )
            except (ServerError, ConnectionFailed):
                continue
            found[node_id] = {
                TopicPartition(entry.name, size.partition_index): size.partition_size
                for folder in response.results
                for entry in folder.topics
                for size in entry.partitions
            }
        return found

    # -- settings

    async def configs(
        self, kind: Resource, names: Iterable[str], wanted: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        """Returns settings `wanted` of topics or brokers, by resource name; omits brokers that do not answer."""
        found: dict[str, dict[str, str | None]] = {}
        if kind is Resource.BROKER:
            for name in names:
                with suppress(ServerError, ConnectionFailed):
                    found |= await self._configs(int(name), kind, [name], wanted)
            return found
        for some in _portions(names):
            found |= await self._configs(Target.ANY, kind, some, wanted)
        return found

    async def _configs(
        self, target: int | Target, kind: Resource, names: Iterable[str], wanted: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        results = await describe_configs(self._client, kind, names, list(wanted), target=target)
        return {
            result.resource_name: {entry.name: entry.value for entry in result.configs}
            for result in results
            if result.error_code == ErrorCode.NONE
        }

    async def alter_configs(self, changes: Iterable[ConfigChange]) -> None:
        """Changes the named settings of topics and brokers. Raises the first error; other changes may be applied."""
        for some in _portions(changes):
            await alter_configs(self._client, some)


def _portions(values: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Yields the values in tuples of at most AT_ONCE, for one request each."""
    left = iter(values)
    while portion := tuple(islice(left, AT_ONCE)):
        yield portion


def _by_topic(tps: Iterable[TopicPartition]) -> Iterator[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for tp in tps:
        found.setdefault(tp.topic, []).append(tp.partition)
    yield from found.items()


def _of(tp: TopicPartition, said: str | None) -> str | None:
    """Returns the broker's message `said` with the partition's name before it; None if there is no message."""
    return f"{tp}: {said}" if said else None

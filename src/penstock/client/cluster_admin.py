"""Brokers and replicas: described, moved, elected, and the settings that go with it. Topics: see admin.py."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Final, TypeVar

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import ConnectionFailed, ServerError, check, refusal
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

AT_ONCE: Final = 1000
"""Partitions, or topics, that one request names: it stays well below what a broker reads."""
Failures = dict[TopicPartition, ServerError]
T = TypeVar("T")


class Resource(IntEnum):
    """What has settings, by its number in the protocol."""

    TOPIC = 2
    BROKER = 4


class Election(IntEnum):
    """Which leader is wanted: the first replica, or any that is there (and may lack messages)."""

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
    """A partition whose replicas are being moved."""

    name: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """New settings of a topic or a broker; a value of None brings a setting back to its default."""

    kind: Resource
    name: str
    values: Mapping[str, str | None] = field(default_factory=dict)


class ClusterAdmin:
    """What is done to the brokers of a cluster and to the replicas on them."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def describe(self) -> ClusterDescription:
        """The brokers that are there now."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)

        async def ask() -> ClusterDescription:
            response: DescribeClusterResponse = await self._client.request(Target.ANY, request)
            check(response.error_code, "the cluster", response.error_message)
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

        return await self._client.retrying(ask)

    # -- replicas

    async def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_resize: bool = True
    ) -> Failures:
        """Move partitions to these replicas, or cancel their moves where there are none; those that were refused.

        `may_resize`: whether the number of replicas may become another (KIP-860).
        """
        failures: Failures = {}
        for names in _portions(wanted):
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._timeout_ms,
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
                    for topic, numbers in _by_topic(names)
                ],
            )
            failures |= await self._reassign(request)
        return failures

    async def _reassign(self, request: AlterPartitionReassignmentsRequest) -> Failures:
        async def ask() -> Failures:
            response: AlterPartitionReassignmentsResponse = await self._client.request(Target.CONTROLLER, request)
            check(response.error_code, "the reassignment", response.error_message)
            return {
                name: refusal(entry.error_code, f"partition {name}", _of(name, entry.error_message))
                for topic in response.responses
                for entry in topic.partitions
                if entry.error_code != ErrorCode.NONE
                for name in [TopicPartition(topic.name, entry.partition_index)]
            }

        return await self._client.retrying(ask)

    async def reassignments(
        self, names: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way: all, or those of these partitions."""
        found: dict[TopicPartition, Reassignment] = {}
        for some in [None] if names is None else _portions(names):
            topics = None
            if some is not None:
                topics = [
                    ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in _by_topic(some)
                ]
            request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=topics)
            found |= await self._reassignments(request)
        return found

    async def _reassignments(self, request: ListPartitionReassignmentsRequest) -> dict[TopicPartition, Reassignment]:
        async def ask() -> dict[TopicPartition, Reassignment]:
            response: ListPartitionReassignmentsResponse = await self._client.request(Target.CONTROLLER, request)
            check(response.error_code, "the reassignments", response.error_message)
            return {
                name: Reassignment(
                    name=name,
                    replicas=tuple(entry.replicas),
                    adding=tuple(entry.adding_replicas),
                    removing=tuple(entry.removing_replicas),
                )
                for topic in response.topics
                for entry in topic.partitions
                for name in [TopicPartition(topic.name, entry.partition_index)]
            }

        return await self._client.retrying(ask)

    async def elect_leaders(
        self, names: Collection[TopicPartition] | None = None, election: Election = Election.PREFERRED
    ) -> dict[TopicPartition, ServerError | None]:
        """Hold elections; what came of each. Of all partitions, those that need none are left out."""
        results: dict[TopicPartition, ServerError | None] = {}
        for some in [None] if names is None else _portions(names):
            topics = None
            if some is not None:
                topics = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in _by_topic(some)]
            request = ElectLeadersRequest(
                election_type=election, topic_partitions=topics, timeout_ms=self._timeout_ms
            )
            results |= await self._elect_leaders(request)
        return results

    async def _elect_leaders(self, request: ElectLeadersRequest) -> dict[TopicPartition, ServerError | None]:
        async def ask() -> dict[TopicPartition, ServerError | None]:
            response: ElectLeadersResponse = await self._client.request(Target.CONTROLLER, request)
            check(response.error_code, "the election")
            return {
                name: refusal(entry.error_code, f"partition {name}", _of(name, entry.error_message))
                if entry.error_code
                else None
                for topic in response.replica_election_results
                for entry in topic.partition_result
                for name in [TopicPartition(topic.topic, entry.partition_id)]
            }

        return await self._client.retrying(ask)

    async def sizes(
        self, node_ids: Iterable[int], names: Collection[TopicPartition] | None = None
    ) -> dict[int, dict[TopicPartition, int]]:
        """Bytes of each replica that a broker has; brokers that do not answer are left out."""
        topics = None
        if names is not None:
            topics = [DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in _by_topic(names)]
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
        """Some settings of topics or brokers. A broker's only itself knows: who does not answer is left out."""
        found: dict[str, dict[str, str | None]] = {}
        if kind is Resource.BROKER:
            for name in names:
                try:
                    found |= await self._configs(int(name), kind, [name], wanted)
                except (ServerError, ConnectionFailed):
                    continue
            return found
        for some in _portions(names):
            found |= await self._configs(Target.ANY, kind, some, wanted)
        return found

    async def _configs(
        self, target: int | Target, kind: Resource, names: Iterable[str], wanted: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(wanted))
                for name in names
            ],
        )
        response: DescribeConfigsResponse = await self._client.request(target, request)
        return {
            result.resource_name: {entry.name: entry.value for entry in result.configs}
            for result in response.results
            if result.error_code == ErrorCode.NONE
        }

    async def alter_configs(self, changes: Iterable[ConfigChange]) -> None:
        """Change settings of topics and brokers; others stay. What is refused is raised when all have been tried."""
        for some in _portions(changes):
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=change.kind,
                        resource_name=change.name,
                        configs=[
                            AlterableConfig(name=key, config_operation=int(value is None), value=value)
                            for key, value in change.values.items()
                        ],
                    )
                    for change in some
                ],
                validate_only=False,
            )
            await self._alter_configs(request)

    async def _alter_configs(self, request: IncrementalAlterConfigsRequest) -> None:
        async def ask() -> None:
            response: IncrementalAlterConfigsResponse = await self._client.request(Target.CONTROLLER, request)
            for result in response.responses:
                kind = Resource(result.resource_type).name.lower()
                check(result.error_code, f"{kind} {result.resource_name!r}", result.error_message)

        await self._client.retrying(ask)

    @property
    def _timeout_ms(self) -> int:
        return int(self._client.settings.connection.request_timeout_s * 1000)


def _portions(values: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """As many at a time as one request names."""
    left = iter(values)
    while portion := tuple(islice(left, AT_ONCE)):
        yield portion


def _by_topic(names: Iterable[TopicPartition]) -> Iterator[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for name in names:
        found.setdefault(name.topic, []).append(name.partition)
    yield from found.items()


def _of(name: TopicPartition, said: str | None) -> str | None:
    """What a broker says of a partition does not name it."""
    return f"{name}: {said}" if said else None

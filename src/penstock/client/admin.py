"""Topics: made, listed, described, changed, trimmed and deleted."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from penstock.client.cluster import KafkaClient, Target
from penstock.client.errors import ConnectionFailed, ServerError, check, refusal
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import Range, When, list_offsets_once
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
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
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.schema import NIL_UUID

DEFAULT: Final = -1
"""A number of partitions or replicas that the cluster is to choose."""
TO_THE_END: Final = -1
"""As an offset to trim to: everything that is there."""
_TOPIC: Final = 2  # the number of topics among the resources that have settings
_SET, _DELETE = 0, 1


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, by its number in DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """A partition as `Admin.describe` finds it. `held` and `size_bytes` are None where they cannot be had."""

    name: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    held: Range | None
    size_bytes: int | None
    problem: str | None
    """Why `held` is not known."""


class Admin:
    """What is done to topics, rather than with them."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        *,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> tuple[int, int]:
        """Make a topic; the partitions and replicas that it has."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=(),
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
                )
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        async def ask() -> tuple[int, int]:
            response: CreateTopicsResponse = await self._client.request(Target.CONTROLLER, request)
            result = response.topics[0]
            check(result.error_code, f"topic {name!r}", result.error_message)
            return result.num_partitions, result.replication_factor

        return await self._client.retrying(ask, repeat_lost=False)

    async def topics(self) -> list[TopicInfo]:
        """All topics, by name."""

        async def ask() -> list[TopicInfo]:
            view = await self._client.refresh(None)
            return [view.topics[name] for name in sorted(view.topics)]

        return await self._client.retrying(ask)

    async def topic(self, name: str) -> TopicInfo:
        """One topic, as it is now."""

        async def ask() -> TopicInfo:
            return (await self._client.refresh([name])).topics[name]

        return await self._client.retrying(ask)

    async def describe(self, name: str) -> list[DescribedPartition]:
        """The partitions of a topic. One that is offline is described too: it must not hide the others."""
        topic = await self.topic(name)
        first, _ = await list_offsets_once(self._client, topic.names, When.EARLIEST)
        last, failed = await list_offsets_once(self._client, topic.names, When.LATEST)
        sizes = await self.sizes(topic)
        return [
            DescribedPartition(
                name=partition,
                leader=info.leader,
                leader_epoch=info.leader_epoch,
                replicas=info.replicas,
                isr=info.isr,
                held=(
                    Range(first[partition].offset, last[partition].offset)
                    if partition in first and partition in last
                    else None
                ),
                size_bytes=sizes.get(partition),
                problem=str(failed[partition]) if partition in failed else None,
            )
            for partition in topic.names
            for info in [topic.partitions[partition.partition]]
        ]

    async def sizes(self, topic: TopicInfo) -> dict[TopicPartition, int]:
        """Bytes that the leader of each partition keeps; those that do not answer are left out."""
        found: dict[TopicPartition, int] = {}
        leaders: dict[int, list[int]] = {}
        for number, partition in topic.partitions.items():
            leaders.setdefault(partition.leader, []).append(number)
        for node_id, numbers in leaders.items():
            request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic.name, partitions=numbers)])
            try:
                response: DescribeLogDirsResponse = await self._client.request(node_id, request)
            except (ServerError, ConnectionFailed):
                continue
            for folder in response.results:
                for entry in folder.topics:
                    for size in entry.partitions:
                        name = TopicPartition(entry.name, size.partition_index)
                        found[name] = found.get(name, 0) + size.partition_size
        return found

    async def configs(self, name: str) -> list[ConfigEntry]:
        """The settings of a topic, each with its value and where that comes from."""
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=None)],
            include_documentation=True,
        )

        async def ask() -> list[ConfigEntry]:
            response: DescribeConfigsResponse = await self._client.request(Target.ANY, request)
            result = response.results[0]
            check(result.error_code, f"topic {name!r}", result.error_message)
            return [
                ConfigEntry(
                    name=entry.name,
                    value=entry.value,
                    source=ConfigSource(entry.config_source),
                    doc=entry.documentation or "",
                )
                for entry in result.configs
            ]

        return await self._client.retrying(ask)

    async def alter(
        self, name: str, *, configs: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> None:
        """Set some settings of a topic and bring others back to their defaults; the rest stay."""
        changes = [
            AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in (configs or {}).items()
        ]
        changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in delete]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=changes)],
            validate_only=False,
        )

        async def ask() -> None:
            response: IncrementalAlterConfigsResponse = await self._client.request(Target.CONTROLLER, request)
            result = response.responses[0]
            check(result.error_code, f"topic {name!r}", result.error_message)

        await self._client.retrying(ask, repeat_lost=False)

    async def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions. Keys may land elsewhere from then on."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=False,
        )

        async def ask() -> None:
            response: CreatePartitionsResponse = await self._client.request(Target.CONTROLLER, request)
            result = response.results[0]
            check(result.error_code, f"topic {name!r}", result.error_message)

        await self._client.retrying(ask, repeat_lost=False)

    async def delete(self, name: str) -> None:
        """Delete a topic with all that is in it."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NIL_UUID)],
            topic_names=[name],
            timeout_ms=self._timeout_ms,
        )

        async def ask() -> None:
            response: DeleteTopicsResponse = await self._client.request(Target.CONTROLLER, request)
            result = response.responses[0]
            check(result.error_code, f"topic {name!r}", result.error_message)

        await self._client.retrying(ask, repeat_lost=False)

    async def trim(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop everything before an offset (TO_THE_END: all); the first offset that is left in each partition."""
        done: dict[TopicPartition, int] = {}

        async def ask() -> dict[TopicPartition, int]:
            left = [name for name in before if name not in done]
            for node_id, partitions in (await self._client.by_leader(left)).items():
                names = [partition.name for partition in partitions]
                response: DeleteRecordsResponse = await self._client.request(node_id, self._trim(names, before))
                for topic in response.topics:
                    for entry in topic.partitions:
                        name = TopicPartition(topic.name, entry.partition_index)
                        check(entry.error_code, f"partition {name}", _trim_advice(name, entry.error_code))
                        done[name] = entry.low_watermark
            return done

        return await self._client.retrying(ask, topics={name.topic for name in before})

    def _trim(self, names: Collection[TopicPartition], before: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for name in names:
            topics.setdefault(name.topic, []).append(
                DeleteRecordsPartition(partition_index=name.partition, offset=before[name])
            )
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=entries) for name, entries in topics.items()],
            timeout_ms=self._timeout_ms,
        )

    @property
    def _timeout_ms(self) -> int:
        return int(self._client.settings.connection.request_timeout_s * 1000)


def _trim_advice(name: TopicPartition, code: int) -> str | None:
    if code == ErrorCode.POLICY_VIOLATION:
        # The answer has no room for words of its own.
        return f"partition {name} is only compacted; add delete to the topic's cleanup.policy to trim it"
    return str(refusal(code, f"partition {name} cannot be trimmed")) if code else None

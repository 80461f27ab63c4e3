"""Topic administration: create, list, describe, alter configs, add partitions, delete records, delete."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from penstock.client.cluster import KafkaClient, Target
from penstock.client.configs import ConfigChange, Resource, alter_configs, describe_configs
from penstock.client.errors import ConnectionFailed, ServerError, check, refusal
from penstock.client.metadata import TopicInfo
from penstock.client.offsets import LogRange, When, list_offsets_once
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.schema import NIL_UUID

DEFAULT: Final = -1
"""Number of partitions or replicas that stands for the cluster's default."""
TO_THE_END: Final = -1
"""Offset that, passed to `trim`, deletes all records."""


class ConfigSource(IntEnum):
    """Where the value of a setting comes from; values are the config source codes of DescribeConfigs."""

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
    """A partition as described by `Admin.describe`; its offset range and size are None if its leader is offline."""

    tp: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    held: LogRange | None
    size_bytes: int | None
    problem: str | None
    """Why the lookup of the offset range `held` failed; None if the lookup succeeded."""


class Admin:
    """Administration of topics over the Kafka protocol."""

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
        """Creates a topic. Returns its number of partitions and its replication factor."""
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
            timeout_ms=self._client.request_timeout_ms,
            validate_only=validate_only,
        )
        result = await self._change(name, request, lambda response: response.topics)
        return result.num_partitions, result.replication_factor

    async def _change(self, name: str, request: object, results: Callable[[Any], Sequence[Any]]) -> Any:
        """Sends a request about one topic to the controller; returns the topic's result, or raises its error.

        Not retried if the response is lost: if the change was made, a second request would fail.
        """

        async def attempt() -> Any:
            (result,) = results(await self._client.request(Target.CONTROLLER, request))
            check(result.error_code, f"topic {name!r}", result.error_message)
            return result

        return await self._client.retrying(attempt, retry_lost=False)

    async def topics(self) -> list[TopicInfo]:
        """Returns all topics, sorted by name."""

        async def attempt() -> list[TopicInfo]:
            view = await self._client.refresh(None)
            return [view.topics[name] for name in sorted(view.topics)]

        return await self._client.retrying(attempt)

    async def topic(self, name: str) -> TopicInfo:
        """Returns the current metadata of one topic. Raises ServerError if it does not exist."""

        async def attempt() -> TopicInfo:
            return (await self._client.refresh([name])).topics[name]

        return await self._client.retrying(attempt)

    async def describe(self, name: str) -> list[DescribedPartition]:
        """Returns the partitions of a topic, offline ones included."""
        topic = await self.topic(name)
        first, failed_first = await list_offsets_once(self._client, topic.tps, When.EARLIEST)
        last, failed_last = await list_offsets_once(self._client, topic.tps, When.LATEST)
        failed = failed_first | failed_last
        sizes = await self.sizes(topic)
        return [
            DescribedPartition(
                tp=tp,
                leader=info.leader,
                leader_epoch=info.leader_epoch,
                replicas=info.replicas,
                isr=info.isr,
                held=(LogRange(first[tp].offset, last[tp].offset) if tp in first and tp in last else None),
                size_bytes=sizes.get(tp),
                problem=str(failed[tp]) if tp in failed else None,
            )
            for tp in topic.tps
            for info in [topic.partitions[tp.partition]]
        ]

    async def sizes(self, topic: TopicInfo) -> dict[TopicPartition, int]:
        """Returns the bytes on disk of each partition, from its leader; omits partitions with an offline leader."""
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
                        tp = TopicPartition(entry.name, size.partition_index)
                        found[tp] = found.get(tp, 0) + size.partition_size
        return found

    async def configs(self, name: str) -> list[ConfigEntry]:
        """Returns the settings of a topic, each with its value and its source."""

        async def attempt() -> list[ConfigEntry]:
            (result,) = await describe_configs(self._client, Resource.TOPIC, [name], documentation=True)
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

        return await self._client.retrying(attempt)

    async def alter(
        self, name: str, *, configs: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> None:
        """Sets the settings `configs` of a topic and resets the settings `delete` to their defaults; others stay."""
        configs = configs or {}
        if not configs.keys().isdisjoint(delete):
            raise ServerError(ErrorCode.INVALID_REQUEST, f"the request changes a setting of {name!r} twice")
        change = ConfigChange(kind=Resource.TOPIC, name=name, values={**configs, **dict.fromkeys(delete)})
        await alter_configs(self._client, [change], retry_lost=False)

    async def create_partitions(self, name: str, partitions: int) -> None:
        """Increases a topic to `partitions` partitions. Keys may map to other partitions from then on."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=self._client.request_timeout_ms,
            validate_only=False,
        )
        await self._change(name, request, lambda response: response.results)

    async def delete(self, name: str) -> None:
        """Deletes a topic and all of its messages."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NIL_UUID)],
            topic_names=[name],
            timeout_ms=self._client.request_timeout_ms,
        )
        await self._change(name, request, lambda response: response.responses)

    async def trim(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes records before an offset (TO_THE_END: all). Returns the new log start offset of each partition."""
        done: dict[TopicPartition, int] = {}

        async def attempt() -> dict[TopicPartition, int]:
            left = [tp for tp in before if tp not in done]
            for node_id, partitions in (await self._client.by_leader(left)).items():
                tps = [partition.tp for partition in partitions]
                response: DeleteRecordsResponse = await self._client.request(node_id, self._trim(tps, before))
                for topic in response.topics:
                    for entry in topic.partitions:
                        tp = TopicPartition(topic.name, entry.partition_index)
                        check(entry.error_code, f"partition {tp}", _trim_advice(tp, entry.error_code))
                        done[tp] = entry.low_watermark
            return done

        return await self._client.retrying(attempt, topics={tp.topic for tp in before})

    def _trim(self, tps: Collection[TopicPartition], before: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for tp in tps:
            topics.setdefault(tp.topic, []).append(
                DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp])
            )
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=entries) for name, entries in topics.items()],
            timeout_ms=self._client.request_timeout_ms,
        )


def _trim_advice(tp: TopicPartition, code: int) -> str | None:
    if code == ErrorCode.POLICY_VIOLATION:
        # The response has no error message.
        return f"partition {tp} is only compacted; add delete to the topic's cleanup.policy to trim it"
    return str(refusal(code, f"partition {tp} cannot be trimmed")) if code else None

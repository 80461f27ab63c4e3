"""Cluster metadata as immutable values: brokers, topics, partitions, leaders. Cached and refreshed by cluster.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from penstock.client.address import Address
from penstock.client.errors import refusal
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from penstock.wire.schema import NIL_UUID

NO_NODE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    tp: TopicPartition
    leader: int
    """Node id of the leader, or NO_NODE."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    topic_id: bytes
    """The topic id; all zeros if the broker is too old to report it."""
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]

    @property
    def has_id(self) -> bool:
        return self.topic_id != NIL_UUID

    @property
    def tps(self) -> list[TopicPartition]:
        """All partitions of the topic, in order."""
        return [TopicPartition(self.name, number) for number in sorted(self.partitions)]

    def partition(self, number: int) -> PartitionInfo:
        found = self.partitions.get(number)
        if found is None:
            raise refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                self.name,
                f"topic {self.name!r} has {len(self.partitions)} partitions, asked for partition {number}",
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Brokers, topics and controller of the cluster, as described by the last metadata responses."""

    cluster_id: str = ""
    controller: int = NO_NODE
    brokers: Mapping[int, Address] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicInfo] = field(default_factory=lambda: MappingProxyType({}))

    def updated(self, response: MetadataResponse) -> "ClusterView":
        """Returns a copy updated by a metadata response; topics that the response does not name stay unchanged."""
        topics = dict(self.topics)
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                topics[topic.name] = read_topic(topic)
            else:
                topics.pop(topic.name, None)
        return replace(
            self,
            cluster_id=response.cluster_id or "",
            controller=response.controller_id,
            brokers={broker.node_id: Address(broker.host, broker.port) for broker in response.brokers},
            topics=topics,
        )


def read_topic(topic: MetadataResponseTopic) -> TopicInfo:
    name = topic.name or ""
    return TopicInfo(
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions={
            entry.partition_index: PartitionInfo(
                tp=TopicPartition(name, entry.partition_index),
                leader=entry.leader_id,
                leader_epoch=entry.leader_epoch,
                replicas=tuple(entry.replica_nodes),
                isr=tuple(entry.isr_nodes),
            )
            for entry in topic.partitions
        },
    )

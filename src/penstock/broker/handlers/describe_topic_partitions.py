"""DescribeTopicPartitions: returns topics with their partitions, page by page (KIP-966)."""

from collections.abc import Awaitable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.handlers.metadata import UnreachableLeaders, unreachable_leaders
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.cluster.image import PartitionState
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import INTERNAL_TOPICS
from penstock.foundation.steps import Steps
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from penstock.wire.schema import NIL_UUID

PARTITIONS_MAX = 2000


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, call: Call, broker: Broker
) -> Awaitable[DescribeTopicPartitionsResponse]:
    return broker.slices.run(_describe(request, call, broker, unreachable_leaders(call, broker)))


def _describe(
    request: DescribeTopicPartitionsRequest, call: Call, broker: Broker, unreachable: UnreachableLeaders
) -> Steps[DescribeTopicPartitionsResponse]:
    by_name = broker.image.shown_by_name
    names = sorted({topic.name for topic in request.topics} or broker.image.listed_by_name())
    start = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            start = max(0, request.cursor.partition_index)
    remaining = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in with_breaks(names):
        if name is None:
            yield
            continue
        topic = by_name.get(name)
        is_shown = call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, audited=bool(request.topics))
        if topic is None or not is_shown:
            # When all topics are listed, one that was deleted since the last page is no error.
            if request.topics:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(_not_described(name, unknown if is_shown else ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if remaining == 0:
            return _page(topics, Cursor(topic_name=name, partition_index=0))
        numbers = [number for number in topic.partitions if number >= start]
        taken, left = numbers[:remaining], numbers[remaining:]
        start = 0
        remaining -= len(taken)
        partitions = []
        for number in with_breaks(taken):
            if number is None:
                yield
            else:
                partitions.append(_partition(number, topic.partitions[number], unreachable))
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=0,
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=partitions,
                topic_authorized_operations=call.operations(ResourceType.TOPIC, name),
            )
        )
        if left:
            return _page(topics, Cursor(topic_name=name, partition_index=left[0]))
    return _page(topics, None)


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=cursor)


def _not_described(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=NIL_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
    )


def _partition(
    number: int, state: PartitionState, unreachable: UnreachableLeaders
) -> DescribeTopicPartitionsResponsePartition:
    error, leader = unreachable.get(state.leader, (ErrorCode.NONE, state.leader))
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=(),
    )

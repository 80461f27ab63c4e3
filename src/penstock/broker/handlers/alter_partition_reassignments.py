"""AlterPartitionReassignments (KIP-455): starts or cancels the reassignment of partitions to other replicas."""

from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.partition_lookup import find_partition, run_with_timeout
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.cluster.administration import reassign
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition, TopicPartition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

Failures = Mapping[TopicPartition, PenstockError]


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, in_cluster(Operation.ALTER))
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, call: Call, broker: Broker
) -> AlterPartitionReassignmentsResponse:
    try:
        failures = await run_with_timeout(broker.metadata, request.timeout_ms, _reassign(request, broker))
    except PenstockError as error:
        # An error of the whole request is also reported for each partition.
        return _answer(request, dict.fromkeys(_partitions_in(request), error), error)
    return _answer(request, failures)


def _partitions_in(request: AlterPartitionReassignmentsRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]


async def _reassign(request: AlterPartitionReassignmentsRequest, broker: Broker) -> Failures:
    failures: dict[TopicPartition, PenstockError] = {}
    tps: dict[TopicIdPartition, TopicPartition] = {}
    wanted = {}
    for topic in request.topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition_index)
            try:
                tp = find_partition(broker, *name)
            except PenstockError as error:
                failures[name] = error
                continue
            tps[tp] = name
            wanted[tp] = partition.replicas
    results = await reassign(
        broker.metadata,
        wanted,
        is_unclean=broker.configs.is_unclean,
        may_resize=request.allow_replication_factor_change,
    )
    return failures | {tps[tp]: error for tp, error in results.items() if error is not None}


def _answer(
    request: AlterPartitionReassignmentsRequest, failures: Failures, refusal: PenstockError | None = None
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=refusal.code if refusal else ErrorCode.NONE,
        error_message=refusal.message if refusal else None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(topic.name, partition.partition_index, failures) for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _result(topic: str, number: int, failures: Failures) -> ReassignablePartitionResponse:
    failure = failures.get(TopicPartition(topic, number))
    return ReassignablePartitionResponse(
        partition_index=number,
        error_code=failure.code if failure else ErrorCode.NONE,
        error_message=failure.message if failure else None,
    )

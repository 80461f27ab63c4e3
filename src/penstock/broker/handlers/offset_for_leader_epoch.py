"""OffsetForLeaderEpoch: returns the end offset of a leader epoch, to detect log divergence (KIP-320)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, call: Call, broker: Broker
) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            try:
                if not call.allows_in_cluster(Operation.CLUSTER_ACTION, audited=False):
                    call.check(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
                partition = broker.readable_partition(topic.topic, b"", wanted.partition)
                partition.check_epoch(wanted.current_leader_epoch)
                epoch, end = partition.log.epochs.end_offset_for(wanted.leader_epoch, partition.log.end_offset)
            except PenstockError as error:
                results.append(EpochEndOffset(error_code=error.code, partition=wanted.partition))
                continue
            results.append(
                EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=epoch, end_offset=end)
            )
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

"""OffsetCommit: commits the offsets of a consumer group."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


@handles(ApiKey.OFFSET_COMMIT)
def offset_commit(request: OffsetCommitRequest, call: Call, broker: Broker) -> None:
    def refuse(error: PenstockError) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=[_refused(topic, error) for topic in request.topics])

    ask(broker.groups, request.group_id, request, call, refuse)


def _refused(topic: OffsetCommitRequestTopic, error: PenstockError) -> OffsetCommitResponseTopic:
    answers = [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error.code)
        for partition in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)

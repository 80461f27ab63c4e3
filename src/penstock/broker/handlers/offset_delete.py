"""OffsetDelete: deletes committed offsets of topics that the group is not subscribed to."""

from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.permissions import DELETE_GROUP, split_topics
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.wire.schema import with_field


@handles(ApiKey.OFFSET_DELETE, DELETE_GROUP)
def offset_delete(request: OffsetDeleteRequest, call: Call, broker: Broker) -> None:
    def error_response(error: PenstockError) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=())

    allowed, denied = split_topics(request.topics, Operation.READ, call, broker)
    if denied:
        refused = [_denied(topic) for topic in denied]
        call.amend = partial(_amend, refused)
        request = with_field(request, "topics", allowed)
    ask(broker.groups, request.group_id, request, call, error_response)


def _amend(refused: list[OffsetDeleteResponseTopic], response: OffsetDeleteResponse) -> OffsetDeleteResponse:
    return response if response.error_code else with_field(response, "topics", [*response.topics, *refused])


def _denied(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )

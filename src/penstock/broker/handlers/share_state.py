"""ShareState: reads or changes share-group delivery state at a partition's leader. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.share.delivery_states import answer_as_leader
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_state import (
    ShareStatePartition,
    ShareStateRequest,
    ShareStateResponse,
    ShareStateTopicResult,
)


@handles(ApiKey.SHARE_STATE)
def share_state(request: ShareStateRequest, call: Call, broker: Broker) -> ShareStateResponse | None:
    if not call.allows_in_cluster(Operation.CLUSTER_ACTION):
        return _refusal(request)
    answer_as_leader(broker, request, call.answer)
    return None


def _refusal(request: ShareStateRequest) -> ShareStateResponse:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ShareStateResponse(
        topics=[
            ShareStateTopicResult(
                topic_id=topic.topic_id,
                partitions=[
                    ShareStatePartition(partition=each.partition, error_code=code) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )

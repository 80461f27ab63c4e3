"""DeleteShareGroupOffsets (KIP-932): deletes an empty share group's delivery state in the given topics."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_share_coordinator
from penstock.broker.permissions import DELETE_GROUP
from penstock.broker.registry import handles
from penstock.cluster.image import Topic
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.commands import DeleteDeliveryState
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock.wire.schema import NIL_UUID


@handles(ApiKey.DELETE_SHARE_GROUP_OFFSETS, DELETE_GROUP)
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, call: Call, broker: Broker
) -> DeleteShareGroupOffsetsResponse:
    image = broker.image
    names = [wanted.topic_name for wanted in request.topics]
    denied = [name for name in names if not call.allows(Operation.READ, ResourceType.TOPIC, name)]
    topics = [(name, image.by_name.get(name)) for name in names if name not in denied]
    queue = image.queues.get(request.group_id)
    own = queue.topic_id if queue is not None else b""
    topic_ids = frozenset(topic.topic_id for _, topic in topics if topic is not None and topic.topic_id != own)
    try:
        await ask_share_coordinator(
            broker, request.group_id, DeleteDeliveryState(group_id=request.group_id, topic_ids=topic_ids)
        )
    except PenstockError as error:
        return DeleteShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, responses=()
        )
    responses = [_answer(name, topic, own) for name, topic in topics] + [_denied(name, call) for name in denied]
    return DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=0, responses=responses)


def _answer(name: str, topic: Topic | None, own: bytes) -> DeleteShareGroupOffsetsResponseTopic:
    code, message = ErrorCode.NONE, None
    if topic is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}"
    elif topic.topic_id == own:
        # Acknowledged messages are reclaimed: all others would be delivered again, in flight or not.
        code, message = ErrorCode.INVALID_REQUEST, f"{name!r} belongs to the queue of that name; delete the queue"
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic.topic_id if topic is not None else NIL_UUID,
        error_code=code,
        error_message=message,
    )


def _denied(name: str, call: Call) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=NIL_UUID,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message=f"{call.principal} may not read topic {name!r}",
    )

"""QueuePeek: returns queue messages without receiving them, from partitions led here. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.queues.peek import PeekRequest
from penstock.broker.queues.peer_brokers import encode_messages, error_name
from penstock.broker.queues.service import QueueService
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_peek import (
    BYTES_MAX,
    MESSAGES_MAX,
    QueuePeeked,
    QueuePeekRequest,
    QueuePeekResponse,
)


def _refusal(error: PenstockError) -> QueuePeekResponse:
    return QueuePeekResponse(error=error_name(error), error_message=error.message)


@handles(ApiKey.QUEUE_PEEK, CLUSTER_ACTION, refuse=_refusal)
def queue_peek(request: QueuePeekRequest, call: Call, broker: Broker) -> None:
    broker.queues.run(_peek(request, broker.queues), call.answer)


async def _peek(request: QueuePeekRequest, service: QueueService) -> QueuePeekResponse:
    try:
        queue = service.find_for_peer(request.queue, request.topic_id)
        if not (1 <= request.max_messages <= MESSAGES_MAX and 1 <= request.max_bytes <= BYTES_MAX):
            raise InvalidRequest(
                f"max_messages={request.max_messages}, max_bytes={request.max_bytes}; expected 1 to {MESSAGES_MAX} "
                f"and 1 to {BYTES_MAX}"
            )
        wanted = PeekRequest.of(
            queue,
            max_messages=request.max_messages,
            max_bytes=request.max_bytes,
            shows_in_flight=request.shows_in_flight,
            shows_delayed=request.shows_delayed,
        )
        found = await service.peeks.peek_here(queue, wanted)
    except PenstockError as error:
        return _refusal(error)
    messages = encode_messages(each.message for each in found.messages)
    return QueuePeekResponse(
        messages=[
            QueuePeeked(state=each.state, message=message)
            for each, message in zip(found.messages, messages, strict=True)
        ],
        has_more=found.has_more,
    )

"""QueuePeek: returns queue messages without receiving them, from partitions led here. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.peek import PeekRequest, PeekResult
from penstock.broker.queues.peer_brokers import encode_messages, error_name
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


@handles(ApiKey.QUEUE_PEEK)
def queue_peek(request: QueuePeekRequest, call: Call, broker: Broker) -> QueuePeekResponse | None:
    service = broker.queues
    try:
        queue = service.find_for_peer(request.queue, request.topic_id)
        if not (1 <= request.max_messages <= MESSAGES_MAX and 1 <= request.max_bytes <= BYTES_MAX):
            raise InvalidRequest(
                f"max_messages={request.max_messages}, max_bytes={request.max_bytes}; expected 1 to {MESSAGES_MAX} "
                f"and 1 to {BYTES_MAX}"
            )
    except PenstockError as error:
        return QueuePeekResponse(error=error_name(error), error_message=error.message)

    def answer(reply: PeekResult | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            call.answer(QueuePeekResponse(error=error_name(reply), error_message=reply.message))
            return
        messages = encode_messages(each.message for each in reply.messages)
        found = [
            QueuePeeked(state=each.state, message=message)
            for each, message in zip(reply.messages, messages, strict=True)
        ]
        call.answer(QueuePeekResponse(messages=found, has_more=reply.has_more))

    wanted = PeekRequest.of(
        queue,
        max_messages=request.max_messages,
        max_bytes=request.max_bytes,
        shows_in_flight=request.shows_in_flight,
        shows_delayed=request.shows_delayed,
    )
    service.peeks.peek_here(queue, wanted, answer)
    return None

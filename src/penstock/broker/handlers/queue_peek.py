"""QueuePeek: messages of a queue on the partitions that this broker leads, shown without taking them."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.peek import Glimpse, Peek
from penstock.broker.queues.remote import messages_out, name_of
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
        queue = service.known(request.queue, request.topic_id)
        if not (1 <= request.max_messages <= MESSAGES_MAX and 1 <= request.max_bytes <= BYTES_MAX):
            raise InvalidRequest(
                f"{request.max_messages} messages and {request.max_bytes} bytes; expected 1 to {MESSAGES_MAX}, and 1 "
                f"to {BYTES_MAX}"
            )
    except PenstockError as error:
        return QueuePeekResponse(error=name_of(error), error_message=error.message)

    def answer(reply: Glimpse | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            call.answer(QueuePeekResponse(error=name_of(reply), error_message=reply.message))
            return
        messages = messages_out(each.message for each in reply.messages)
        found = [
            QueuePeeked(state=each.state, message=message)
            for each, message in zip(reply.messages, messages, strict=True)
        ]
        call.answer(QueuePeekResponse(messages=found, has_more=reply.has_more))

    wanted = Peek.of(
        queue,
        max_messages=request.max_messages,
        max_bytes=request.max_bytes,
        shows_in_flight=request.shows_in_flight,
        shows_delayed=request.shows_delayed,
    )
    service.peeks.peek_here(queue, wanted, answer)
    return None

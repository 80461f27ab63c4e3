"""QueueSend: messages for a queue's partition that this broker leads."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.messages import Sent
from penstock.broker.queues.remote import name_of, new_messages_in
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_send import QueueSendRequest, QueueSendResponse, QueueSentMessage


@handles(ApiKey.QUEUE_SEND)
def queue_send(request: QueueSendRequest, call: Call, broker: Broker) -> None:
    def answer(reply: list[Sent] | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            call.answer(QueueSendResponse(error=name_of(reply), error_message=reply.message))
            return
        sent = [
            QueueSentMessage(offset=each.offset, is_duplicate=each.is_duplicate, message_id=each.message_id)
            for each in reply
        ]
        call.answer(QueueSendResponse(messages=sent))

    try:
        queue = broker.queues.known(request.queue, request.topic_id)
        if not request.messages:
            raise InvalidRequest("there are no messages to send")
    except PenstockError as error:
        answer(error)
        return
    broker.queues.routing.send_here(queue, request.partition, new_messages_in(request.messages), answer)

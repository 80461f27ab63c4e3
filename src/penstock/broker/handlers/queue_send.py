"""QueueSend: appends messages to a partition of a queue that this broker leads. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.messages import Sent
from penstock.broker.queues.peer_brokers import decode_new_messages, error_name
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_send import QueueSendRequest, QueueSendResponse, QueueSentMessage


@handles(ApiKey.QUEUE_SEND)
def queue_send(request: QueueSendRequest, call: Call, broker: Broker) -> None:
    def answer(reply: list[Sent] | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            call.answer(QueueSendResponse(error=error_name(reply), error_message=reply.message))
            return
        sent = [
            QueueSentMessage(offset=each.offset, is_duplicate=each.is_duplicate, message_id=each.message_id)
            for each in reply
        ]
        call.answer(QueueSendResponse(messages=sent))

    try:
        queue = broker.queues.find_for_peer(request.queue, request.topic_id)
        if not request.messages:
            raise InvalidRequest("the request has no messages; send at least one")
    except PenstockError as error:
        answer(error)
        return
    broker.queues.router.send_here(queue, request.partition, decode_new_messages(request.messages), answer)

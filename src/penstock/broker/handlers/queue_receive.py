"""QueueReceive: receives messages from partitions led here, for a client of a peer broker. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.peer_brokers import HELD_MS_MAX, encode_messages, error_name
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_receive import QueueReceiveRequest, QueueReceiveResponse


@handles(ApiKey.QUEUE_RECEIVE)
def queue_receive(request: QueueReceiveRequest, call: Call, broker: Broker) -> None:
    def answer(reply: list[Delivered] | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            call.answer(QueueReceiveResponse(error=error_name(reply), error_message=reply.message))
        else:
            call.answer(QueueReceiveResponse(messages=encode_messages(reply)))

    service = broker.queues
    try:
        queue = service.find_for_peer(request.queue, request.topic_id)
        if request.max_messages < 1 or not 0 <= request.visibility_ms <= HELD_MS_MAX or not request.holder:
            raise InvalidRequest(
                f"max_messages={request.max_messages}, visibility_ms={request.visibility_ms}, "
                f"holder={request.holder!r}; expected 1 or more, 0 to {HELD_MS_MAX}, and a name"
            )
    except PenstockError as error:
        answer(error)
        return
    receive_request = service.receive_request(
        queue, request.holder, request.max_messages, request.visibility_ms, request.repeat
    )

    def answer_or_undo(reply: list[Delivered] | PenstockError) -> None:
        if call.is_disconnected and not isinstance(reply, PenstockError):
            service.undo(queue, reply)  # the requesting broker has disconnected
        else:
            answer(reply)

    service.receivers.receive_for_peer(
        request.node_id, request.ticket, queue, receive_request, request.wait_ms, answer_or_undo
    )

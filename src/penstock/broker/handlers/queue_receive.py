"""QueueReceive: messages of a queue from the partitions that this broker leads, for a client of another one."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.remote import HELD_MS_MAX, messages_out, name_of
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_receive import QueueReceiveRequest, QueueReceiveResponse


@handles(ApiKey.QUEUE_RECEIVE)
def queue_receive(request: QueueReceiveRequest, call: Call, broker: Broker) -> None:
    def answer(reply: list[Delivered] | PenstockError) -> None:
        if isinstance(reply, PenstockError):
            call.answer(QueueReceiveResponse(error=name_of(reply), error_message=reply.message))
        else:
            call.answer(QueueReceiveResponse(messages=messages_out(reply)))

    service = broker.queues
    try:
        queue = service.known(request.queue, request.topic_id)
        if request.max_messages < 1 or not 0 <= request.visibility_ms <= HELD_MS_MAX or not request.holder:
            raise InvalidRequest(
                f"{request.max_messages} messages for {request.visibility_ms} ms; give both, and a name"
            )
    except PenstockError as error:
        answer(error)
        return
    receive_request = service.receive_request(
        queue, request.holder, request.max_messages, request.visibility_ms, request.repeat
    )

    def answer_or_undo(reply: list[Delivered] | PenstockError) -> None:
        if call.is_gone and not isinstance(reply, PenstockError):
            service.give_back(queue, reply)  # the connection of the broker that asked is closed
        else:
            answer(reply)

    service.receivers.visit(request.node_id, request.ticket, queue, receive_request, request.wait_ms, answer_or_undo)

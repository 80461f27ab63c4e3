"""QueueReceive: receives messages from partitions led here, for a client of a peer broker. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.queues.peer_brokers import HELD_MS_MAX, encode_messages, error_name
from penstock.broker.queues.service import QueueService
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_receive import QueueReceiveRequest, QueueReceiveResponse


def _refusal(error: PenstockError) -> QueueReceiveResponse:
    return QueueReceiveResponse(error=error_name(error), error_message=error.message)


@handles(ApiKey.QUEUE_RECEIVE, CLUSTER_ACTION, refuse=_refusal)
def queue_receive(request: QueueReceiveRequest, call: Call, broker: Broker) -> None:
    broker.queues.run(_receive(request, call, broker.queues), call.answer)


async def _receive(request: QueueReceiveRequest, call: Call, service: QueueService) -> QueueReceiveResponse:
    try:
        queue = service.find_for_peer(request.queue, request.topic_id)
        if request.max_messages < 1 or not 0 <= request.visibility_ms <= HELD_MS_MAX or not request.holder:
            raise InvalidRequest(
                f"max_messages={request.max_messages}, visibility_ms={request.visibility_ms}, "
                f"holder={request.holder!r}; expected 1 or more, 0 to {HELD_MS_MAX}, and a name"
            )
        receive_request = service.receive_request(
            queue, request.holder, request.max_messages, request.visibility_ms, request.repeat
        )
        messages = await service.receivers.receive_for_peer(
            request.node_id, request.ticket, queue, receive_request, request.wait_ms
        )
    except PenstockError as error:
        return _refusal(error)
    if call.is_disconnected:
        service.undo(queue, messages)  # the requesting broker has disconnected
    return QueueReceiveResponse(messages=encode_messages(messages))

"""QueueSend: appends messages to a partition of a queue that this broker leads. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.queues.peer_brokers import decode_new_messages, error_name
from penstock.broker.queues.service import QueueService
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_send import QueueSendRequest, QueueSendResponse, QueueSentMessage


def _refusal(error: PenstockError) -> QueueSendResponse:
    return QueueSendResponse(error=error_name(error), error_message=error.message)


@handles(ApiKey.QUEUE_SEND, CLUSTER_ACTION, refuse=_refusal)
def queue_send(request: QueueSendRequest, call: Call, broker: Broker) -> None:
    broker.queues.run(_send(request, broker.queues), call.answer)


async def _send(request: QueueSendRequest, service: QueueService) -> QueueSendResponse:
    try:
        queue = service.find_for_peer(request.queue, request.topic_id)
        if not request.messages:
            raise InvalidRequest("the request has no messages; send at least one")
        sent = await service.router.send_here(queue, request.partition, decode_new_messages(request.messages))
    except PenstockError as error:
        return _refusal(error)
    return QueueSendResponse(
        messages=[
            QueueSentMessage(offset=each.offset, is_duplicate=each.is_duplicate, message_id=each.message_id)
            for each in sent
        ]
    )

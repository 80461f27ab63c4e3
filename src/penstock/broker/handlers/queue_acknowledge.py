"""QueueAcknowledge: acknowledges messages of a queue on partitions led by this broker. Penstock's own API."""

from collections.abc import Sequence

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.peer_brokers import decode_acks, error_name
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_acknowledge import (
    QueueAcknowledged,
    QueueAcknowledgeRequest,
    QueueAcknowledgeResponse,
)


@handles(ApiKey.QUEUE_ACKNOWLEDGE)
def queue_acknowledge(request: QueueAcknowledgeRequest, call: Call, broker: Broker) -> None:
    def answer(reply: Sequence[PenstockError | None] | PenstockError) -> None:
        each = [reply] * len(request.items) if isinstance(reply, PenstockError) else reply
        call.answer(QueueAcknowledgeResponse(results=[_acknowledged(error) for error in each]))

    try:
        queue = broker.queues.find_for_peer(request.queue, request.topic_id)
        items = decode_acks(request.items)
    except PenstockError as error:
        answer(error)
        return
    if items:
        broker.queues.router.acknowledge_here(queue, items, answer)
    else:
        answer([])


def _acknowledged(error: PenstockError | None) -> QueueAcknowledged:
    if error is None:
        return QueueAcknowledged()
    return QueueAcknowledged(error=error_name(error), error_message=error.message)

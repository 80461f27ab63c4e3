"""QueueAcknowledge: acknowledges messages of partitions that this broker leads."""

from collections.abc import Sequence

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.remote import acks_in, name_of
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
        queue = broker.queues.known(request.queue, request.topic_id)
        items = acks_in(request.items)
    except PenstockError as error:
        answer(error)
        return
    if items:
        broker.queues.routing.acknowledge_here(queue, items, answer)
    else:
        answer([])


def _acknowledged(error: PenstockError | None) -> QueueAcknowledged:
    if error is None:
        return QueueAcknowledged()
    return QueueAcknowledged(error=name_of(error), error_message=error.message)

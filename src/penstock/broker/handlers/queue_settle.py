"""QueueSettle: what becomes of messages that somebody holds, on partitions that this broker leads."""

from collections.abc import Sequence

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.remote import name_of, settlements_in
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_settle import QueueSettled, QueueSettleRequest, QueueSettleResponse


@handles(ApiKey.QUEUE_SETTLE)
def queue_settle(request: QueueSettleRequest, call: Call, broker: Broker) -> None:
    def answer(reply: Sequence[PenstockError | None] | PenstockError) -> None:
        each = [reply] * len(request.items) if isinstance(reply, PenstockError) else reply
        call.answer(QueueSettleResponse(results=[_settled(error) for error in each]))

    try:
        queue = broker.queues.known(request.queue, request.topic_id)
        items = settlements_in(request.items)
    except PenstockError as error:
        answer(error)
        return
    if items:
        broker.queues.routing.settle_here(queue, items, answer)
    else:
        answer([])


def _settled(error: PenstockError | None) -> QueueSettled:
    if error is None:
        return QueueSettled()
    return QueueSettled(error=name_of(error), error_message=error.message)

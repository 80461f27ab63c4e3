"""QueueDeliver: messages that another broker has for somebody who waits at this one."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.remote import messages_in
from penstock.broker.registry import handles
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_deliver import QueueDeliverRequest, QueueDeliverResponse


@handles(ApiKey.QUEUE_DELIVER)
def queue_deliver(request: QueueDeliverRequest, call: Call, broker: Broker) -> QueueDeliverResponse:
    is_taken = broker.queues.receivers.delivered(request.ticket, messages_in(request.messages))
    return QueueDeliverResponse(is_taken=is_taken)

"""QueueDeliver: a peer broker delivers messages to a ReceiveMessage request that waits here. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.queues.peer_brokers import decode_messages
from penstock.broker.registry import handles
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_deliver import QueueDeliverRequest, QueueDeliverResponse


@handles(ApiKey.QUEUE_DELIVER, CLUSTER_ACTION, refuse=lambda _: QueueDeliverResponse(is_taken=False))
def queue_deliver(request: QueueDeliverRequest, call: Call, broker: Broker) -> QueueDeliverResponse:
    is_taken = broker.queues.receivers.deliver(request.ticket, decode_messages(request.messages))
    return QueueDeliverResponse(is_taken=is_taken)

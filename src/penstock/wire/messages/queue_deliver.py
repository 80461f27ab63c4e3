"""Penstock's API 30003, QueueDeliver: delivers messages to a long poll that waits at another broker."""

from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_receive import QueueMessage
from penstock.wire.schema import Array, Bool, Int64, request, response


@request(ApiKey.QUEUE_DELIVER, versions="0", flexible="0+")
class QueueDeliverRequest:
    ticket: Int64
    messages: Array[QueueMessage]


@response(ApiKey.QUEUE_DELIVER, versions="0", flexible="0+")
class QueueDeliverResponse:
    is_taken: Bool
    """False if the long poll does not wait any more: the sender then undoes the deliveries."""

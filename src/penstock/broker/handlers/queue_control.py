"""QueueControl: counts, purges or deletes a queue's messages on partitions led by this broker. Penstock's own API."""

from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.peer_brokers import error_name
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, NotLeaderOrFollower, PenstockError
from penstock.queues.commands import Counts
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_control import (
    COUNT,
    FORGET,
    PURGE,
    STOP_WAITING,
    QueueControlRequest,
    QueueControlResponse,
    QueuePartitionCounts,
)


@handles(ApiKey.QUEUE_CONTROL)
def queue_control(request: QueueControlRequest, call: Call, broker: Broker) -> QueueControlResponse | None:
    service = broker.queues
    if request.action == STOP_WAITING:
        service.receivers.remove_waiter(request.node_id, request.ticket)
        return QueueControlResponse()
    try:
        if request.action not in (COUNT, PURGE, FORGET):
            raise InvalidRequest(f"QueueControl has no action {request.action}")
        queue = service.find_for_peer(request.queue, request.topic_id)
        here = service.queue_partitions.of_topic(queue.topic_id)
        if not here:
            raise NotLeaderOrFollower(f"no partition of queue {queue.name!r} is led by this broker")
    except PenstockError as error:
        return QueueControlResponse(error=error_name(error), error_message=error.message)
    found: dict[int, Counts | PenstockError] = {}

    def take(number: int, reply: Any) -> None:
        found[number] = reply
        if len(found) == len(here):
            call.answer(_answer(found))

    for partition in here:
        service.control_here(queue, request.action, partition, partial(take, partition.number))
    return None


def _answer(found: dict[int, Counts | PenstockError]) -> QueueControlResponse:
    """Returns the message counts of the partitions that succeeded; the caller retries the others."""
    return QueueControlResponse(
        partitions=[
            QueuePartitionCounts(
                partition=number,
                available=counts.available,
                in_flight=counts.in_flight,
                delayed=counts.delayed,
                moving=counts.moving,
            )
            for number, counts in found.items()
            if not isinstance(counts, PenstockError)
        ]
    )

"""QueueControl: counts, purges or deletes a queue's messages on partitions led by this broker. Penstock's own API."""

import asyncio

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.peer_brokers import error_name
from penstock.broker.queues.service import QueueService
from penstock.broker.registry import handles
from penstock.foundation.errors import InvalidRequest, NotLeaderOrFollower, PenstockError
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


def _refusal(error: PenstockError) -> QueueControlResponse:
    return QueueControlResponse(error=error_name(error), error_message=error.message)


@handles(ApiKey.QUEUE_CONTROL, CLUSTER_ACTION, refuse=_refusal)
def queue_control(request: QueueControlRequest, call: Call, broker: Broker) -> QueueControlResponse | None:
    service = broker.queues
    if request.action == STOP_WAITING:
        service.receivers.stop_peer_long_poll(request.node_id, request.ticket)
        return QueueControlResponse()
    service.run(_control(request, service), call.answer)
    return None


async def _control(request: QueueControlRequest, service: QueueService) -> QueueControlResponse:
    """Runs the action on each partition; returns the message counts of partitions on which it succeeded."""

    async def control(partition: QueuePartition) -> QueuePartitionCounts | None:
        try:
            counts = await service.control_here(queue, request.action, partition)
        except PenstockError:
            return None
        return QueuePartitionCounts(
            partition=partition.number,
            available=counts.available,
            in_flight=counts.in_flight,
            delayed=counts.delayed,
            moving=counts.moving,
        )

    try:
        if request.action not in (COUNT, PURGE, FORGET):
            raise InvalidRequest(f"QueueControl has no action {request.action}")
        queue = service.find_for_peer(request.queue, request.topic_id)
        here = service.queue_partitions.of_topic(queue.topic_id)
        if not here:
            raise NotLeaderOrFollower(f"no partition of queue {queue.name!r} is led by this broker")
    except PenstockError as error:
        return _refusal(error)
    found = await asyncio.gather(*map(control, here))
    return QueueControlResponse(partitions=[counts for counts in found if counts is not None])

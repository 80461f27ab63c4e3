"""QueueAcknowledge: acknowledges messages of a queue on partitions led by this broker. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.queues.peer_brokers import decode_acks, error_name
from penstock.broker.queues.service import QueueService
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
from penstock.foundation.errors import NotAuthorized, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_acknowledge import (
    QueueAcknowledged,
    QueueAcknowledgeRequest,
    QueueAcknowledgeResponse,
)


@handles(ApiKey.QUEUE_ACKNOWLEDGE)
def queue_acknowledge(
    request: QueueAcknowledgeRequest, call: Call, broker: Broker
) -> QueueAcknowledgeResponse | None:
    try:
        call.check_cluster(Operation.CLUSTER_ACTION)
    except NotAuthorized as error:
        return QueueAcknowledgeResponse(results=[_acknowledged(error)] * len(request.items))
    broker.queues.run(_acknowledge(request, broker.queues), call.answer)
    return None


async def _acknowledge(request: QueueAcknowledgeRequest, service: QueueService) -> QueueAcknowledgeResponse:
    replies: list[PenstockError | None]
    try:
        queue = service.find_for_peer(request.queue, request.topic_id)
        replies = await service.router.acknowledge_here(queue, decode_acks(request.items))
    except PenstockError as error:
        replies = [error] * len(request.items)
    return QueueAcknowledgeResponse(results=[_acknowledged(error) for error in replies])


def _acknowledged(error: PenstockError | None) -> QueueAcknowledged:
    if error is None:
        return QueueAcknowledged()
    return QueueAcknowledged(error=error_name(error), error_message=error.message)

"""QueueClaim: acquires and acknowledges messages of a queue or share group by offset. Penstock's own API.

Used by `penstock pipeline run redrive`.
"""

from collections.abc import Iterable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_share_coordinator
from penstock.broker.queues.claims import Claimer, ClaimSettings, acknowledge, check_ranges, survey
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.peer_brokers import HELD_MS_MAX
from penstock.broker.registry import handles
from penstock.cluster.administration import add_companion
from penstock.cluster.queue_changes import find_queue, queue_of
from penstock.cluster.topic_changes import check_may_share
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import CoordinatorLoadInProgress, InvalidRequest, PenstockError
from penstock.groups.commands import AddDeliveryState
from penstock.queues.commands import AckType
from penstock.queues.records import DeliveryRange
from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_claim import (
    AVAILABLE,
    CLAIM,
    DELAYED,
    FIND,
    FINISH,
    IN_FLIGHT,
    MOVING,
    PREPARE,
    RANGES_MAX,
    RANGES_SHOWN_MAX,
    SURVEY,
    UNDO,
    QueueClaimRequest,
    QueueClaimResponse,
    QueueDeliveryRange,
    QueueRange,
)

_ACK_TYPES = {FINISH: AckType.DONE, UNDO: AckType.UNDO}


@handles(ApiKey.QUEUE_CLAIM)
async def queue_claim(request: QueueClaimRequest, call: Call, broker: Broker) -> QueueClaimResponse:
    try:
        if request.action == FIND:
            return _find(request, call, broker)
        _check(request, call, broker)
        if request.action == PREPARE:
            return await _prepare(request, broker)
        return await _at_leader(request, broker)
    except PenstockError as error:
        return QueueClaimResponse(error_code=error.code, error_message=error.message, topic_id=request.topic_id)


def _check(request: QueueClaimRequest, call: Call, broker: Broker) -> None:
    """Raises NotAuthorized if the client may not consume the topic as this group."""
    topic = broker.topic(None, request.topic_id)
    call.check(Operation.READ, ResourceType.TOPIC, topic.name)
    call.check(Operation.READ, ResourceType.GROUP, request.group)


def _find(request: QueueClaimRequest, call: Call, broker: Broker) -> QueueClaimResponse:
    queue = queue_of(broker.image, request.group)
    topic = broker.image.topics[queue.topic_id]
    call.check(Operation.READ, ResourceType.TOPIC, topic.name)
    return QueueClaimResponse(
        topic=topic.name, topic_id=queue.topic_id, is_queue=True, is_fifo=queue.settings.is_fifo
    )


async def _prepare(request: QueueClaimRequest, broker: Broker) -> QueueClaimResponse:
    """Registers the share group's delivery state at its coordinator, so that deleting the group deletes the state."""
    topic = broker.topic(None, request.topic_id)
    check_may_share(topic)
    if find_queue(broker.image, request.group) is not None:
        raise InvalidRequest(f"{request.group!r} is the name of a queue; choose another group name")
    names = {topic.topic_id: topic.name}
    await ask_share_coordinator(broker, request.group, AddDeliveryState(group_id=request.group, topics=names))
    await add_companion(broker.metadata, topic.topic_id)
    return QueueClaimResponse(topic=topic.name, topic_id=topic.topic_id)


async def _at_leader(request: QueueClaimRequest, broker: Broker) -> QueueClaimResponse:
    replica = broker.partition("", request.topic_id, request.partition)
    queue_partitions = broker.queue_partitions
    partition = queue_partitions.find(request.topic_id, request.partition) if queue_partitions is not None else None
    if partition is None and replica.companion is None and request.action == SURVEY:
        return QueueClaimResponse(  # no group has delivery state here
            topic_id=request.topic_id,
            start_offset=replica.log.start_offset,
            undelivered_from=replica.log.start_offset,
            end_offset=replica.last_stable_offset,
        )
    if partition is None:
        raise CoordinatorLoadInProgress(f"the delivery state of {replica.name} is not loaded yet; try again")
    terms = _terms(request, broker)
    ranges = check_ranges([(each.first, each.last) for each in request.ranges], RANGES_MAX)
    if request.action == SURVEY:
        return _survey(request, partition)
    if request.action == CLAIM:
        if not 0 < request.visibility_ms <= HELD_MS_MAX:
            raise InvalidRequest(
                f"visibility timeout of {request.visibility_ms} ms is out of range; expected 1 to {HELD_MS_MAX}"
            )
        claimer = Claimer(partition, terms, broker.threads)
        taken = await claimer.claim(request.holder, ranges, request.visibility_ms)
        delivery_ranges = [
            QueueDeliveryRange(
                first=each.first,
                last=each.last,
                state=IN_FLIGHT,
                count=each.count,
                holder=request.holder,
                due_in_ms=request.visibility_ms,
            )
            for each in taken
        ]
        return QueueClaimResponse(topic_id=request.topic_id, delivery_ranges=delivery_ranges)
    ack_type = _ACK_TYPES.get(request.action)
    if ack_type is None:
        raise InvalidRequest(f"QueueClaim has no action {request.action}")
    settled = await acknowledge(partition, terms, request.holder, ranges, ack_type)
    lost = [QueueRange(first=first, last=last) for first, last in settled.lost]
    return QueueClaimResponse(topic_id=request.topic_id, finished=settled.finished, lost=lost)


def _terms(request: QueueClaimRequest, broker: Broker) -> ClaimSettings:
    """Returns delivery settings: those of queue `request.group`, or the defaults without delay for a share group."""
    queue = find_queue(broker.image, request.group)
    if queue is None or queue.topic_id != request.topic_id:
        return ClaimSettings(request.group)
    return ClaimSettings(request.group, broker.queues.delivery_settings(queue), queue.settings.delay_s * 1000)


def _survey(request: QueueClaimRequest, partition: QueuePartition) -> QueueClaimResponse:
    now_ms = partition.now_ms
    found = survey(partition, request.group, request.offset, RANGES_SHOWN_MAX, now_ms)
    return QueueClaimResponse(
        topic_id=request.topic_id,
        delivery_ranges=list(_shown(found.ranges, now_ms)),
        next_offset=found.next_offset,
        start_offset=partition.partition.log.start_offset,
        undelivered_from=found.undelivered_from,
        end_offset=partition.partition.last_stable_offset,
    )


def _shown(delivery_ranges: Iterable[DeliveryRange], now_ms: int) -> Iterable[QueueDeliveryRange]:
    for delivery_range in delivery_ranges:
        is_due = delivery_range.due_ms <= now_ms
        state = AVAILABLE if is_due else IN_FLIGHT if delivery_range.holder else DELAYED
        yield QueueDeliveryRange(
            first=delivery_range.first,
            last=delivery_range.last,
            state=MOVING if delivery_range.move is not None else state,
            count=delivery_range.count,
            holder=delivery_range.holder,
            due_in_ms=max(0, delivery_range.due_ms - now_ms),
        )

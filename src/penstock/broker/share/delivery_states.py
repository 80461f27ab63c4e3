"""Reads, sets and deletes delivery state of share groups at partition leaders, for group coordinators."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.coordinator_requests import reply_of
from penstock.broker.share.partition import SharePartition
from penstock.cluster.administration import add_companions
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    CoordinatorLoadInProgress,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    PenstockError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.commands import AddCompanionLogs, DeleteStateAtLeaders, DeliveryStateDeleted
from penstock.queues.commands import DeleteGroup, SetPosition
from penstock.wire.messages.share_state import (
    DESCRIBE,
    FORGET,
    PLACE,
    ShareStatePartition,
    ShareStateRequest,
    ShareStateResponse,
    ShareStateTopic,
    ShareStateTopicPartition,
    ShareStateTopicResult,
)

logger = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 0.1
RETRY_FOR_S: Final = 10.0
"""Time, in seconds, for which a request is retried while partition leaders are not ready."""
RETRIABLE: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
)
Wanted = Mapping[TopicIdPartition, int]
"""The start offset to set for each partition; -1 if none is to be set."""
States = dict[TopicIdPartition, ShareStatePartition]


class ShareGroupStates:
    """Makes the changes of delivery state that group coordinators request, by asking the partition leaders."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._adding: set[bytes] = set()
        self._dropping: set[str] = set()

    def perform(self, effect: Any) -> None:
        """Starts an action that a group coordinator requests: AddCompanionLogs creates logs for delivery state,
        DeleteStateAtLeaders deletes delivery state. If it fails, the coordinator requests it again."""
        spawn = self._broker.metadata.spawn
        if isinstance(effect, AddCompanionLogs):
            new = effect.topic_ids - self._adding
            if new:
                self._adding |= new
                spawn(self._add(new))
        elif isinstance(effect, DeleteStateAtLeaders) and effect.group_id not in self._dropping:
            self._dropping.add(effect.group_id)
            spawn(self._drop(effect))

    async def _add(self, topic_ids: frozenset[bytes]) -> None:
        try:
            refused = await add_companions(self._broker.metadata, topic_ids)
        except PenstockError as error:
            refused = dict.fromkeys(topic_ids, error)
        finally:
            self._adding -= topic_ids
        for topic_id, reason in refused.items():
            logger.warning("companion_log_not_created topic_id=%s reason=%r", topic_id.hex(), str(reason))

    async def _drop(self, effect: DeleteStateAtLeaders) -> None:
        broker, group_id = self._broker, effect.group_id
        try:
            tps = partitions_of(broker, self._without_queue_topic(group_id, effect.topic_ids))
            states = await ask_leaders(broker, FORGET, group_id, dict.fromkeys(tps, -1))
        finally:
            self._dropping.discard(group_id)
        failed = [state for state in states.values() if state.error_code and not _is_gone(state)]
        if failed:
            logger.warning("share_state_not_dropped group=%r reason=%r", group_id, failed[0].error_message)
        else:
            dropped = DeliveryStateDeleted(group_id=group_id, topic_ids=effect.topic_ids)
            broker.groups.submit(group_id, dropped, _ignore)

    def _without_queue_topic(self, group_id: str, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Returns `topic_ids` without the topic of the queue named `group_id`, if there is one: the delivery state
        stored there under `group_id` is the queue's, and must not be deleted with the share group."""
        queue = self._broker.image.queues.get(group_id)
        return [topic_id for topic_id in topic_ids if queue is None or queue.topic_id != topic_id]


def _is_gone(state: ShareStatePartition) -> bool:
    return state.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def partitions_of(broker: Broker, topic_ids: Iterable[bytes]) -> list[TopicIdPartition]:
    """Returns all partitions of the given topics; skips topics that do not exist."""
    topics = (broker.image.topics.get(topic_id) for topic_id in topic_ids)
    return [
        TopicIdPartition(topic.topic_id, number)
        for topic in topics
        if topic is not None
        for number in topic.partitions
    ]


async def ask_leaders(broker: Broker, action: int, group_id: str, wanted: Wanted) -> States:
    """Asks partition leaders to describe, set or delete (`action`) a share group's delivery state. Returns the
    state or error of each partition. Retries for up to RETRY_FOR_S while leaders are not ready."""
    states: States = {}
    left = dict(wanted)
    deadline = asyncio.get_running_loop().time() + RETRY_FOR_S
    while left:
        states |= await _ask_once(broker, action, group_id, left)
        left = {tp: offset for tp, offset in left.items() if states[tp].error_code in RETRIABLE}
        if left and asyncio.get_running_loop().time() >= deadline:
            break
        if left:
            await asyncio.sleep(RETRY_PAUSE_S)
    return states


async def _ask_once(broker: Broker, action: int, group_id: str, wanted: Wanted) -> States:
    by_leader: dict[int, dict[TopicIdPartition, int]] = {}
    states: States = {}
    for tp, offset in wanted.items():
        try:
            by_leader.setdefault(_leader(broker, tp), {})[tp] = offset
        except PenstockError as error:
            states[tp] = _error_state(tp, error)
    asked = [_ask_one(broker, node, action, group_id, share) for node, share in by_leader.items()]
    for found in await asyncio.gather(*asked):
        states |= found
    return states


def _leader(broker: Broker, tp: TopicIdPartition) -> int:
    topic_id, number = tp
    topic = broker.image.topics.get(topic_id)
    if topic is None:
        raise UnknownTopicId("the topic was deleted")
    state = topic.partitions.get(number)
    if state is None:
        raise UnknownTopicOrPartition(f"topic {topic.name!r} has no partition {number}")
    if state.leader not in broker.image.brokers:
        raise NotLeaderOrFollower(f"partition {number} has no leader; try again")
    return state.leader


async def _ask_one(broker: Broker, node: int, action: int, group_id: str, wanted: Wanted) -> States:
    topics: dict[bytes, list[ShareStateTopicPartition]] = {}
    for (topic_id, number), offset in wanted.items():
        topics.setdefault(topic_id, []).append(ShareStateTopicPartition(partition=number, offset=offset))
    request = ShareStateRequest(
        action=action,
        group_id=group_id,
        topics=[ShareStateTopic(topic_id=topic_id, partitions=tps) for topic_id, tps in topics.items()],
    )
    is_local = node == broker.node_id
    reply = await reply_of(
        partial(answer_as_leader, broker, request) if is_local else partial(broker.ask, node, request)
    )
    if isinstance(reply, PenstockError):
        # It is unknown whether the request was handled. Repeating it does no harm.
        lost = CoordinatorLoadInProgress(f"broker {node} cannot be reached: {reply}")
        return {tp: _error_state(tp, lost) for tp in wanted}
    return {
        TopicIdPartition(topic.topic_id, state.partition): state
        for topic in reply.topics
        for state in topic.partitions
    }


# -- at the leader


def answer_as_leader(
    broker: Broker, request: ShareStateRequest, answer: Callable[[ShareStateResponse], None]
) -> None:
    """Carries out a coordinator's request on partitions led by this broker; answers once changes are committed."""
    tps = {
        TopicIdPartition(topic.topic_id, entry.partition): entry.offset
        for topic in request.topics
        for entry in topic.partitions
    }
    found: States = {}

    def take(tp: TopicIdPartition, state: ShareStatePartition) -> None:
        found[tp] = state
        if len(found) == len(tps):
            answer(_response(found))

    if not tps:
        answer(_response(found))
    for tp, offset in tps.items():
        try:
            _perform(broker, request.action, request.group_id, tp, offset, partial(take, tp))
        except PenstockError as error:
            take(tp, _error_state(tp, error))


def _perform(
    broker: Broker,
    action: int,
    group_id: str,
    tp: TopicIdPartition,
    offset: int,
    take: Callable[[ShareStatePartition], None],
) -> None:
    partition = broker.partition("", *tp)
    queue_partitions = broker.queue_partitions
    delivery = queue_partitions.find(*tp) if queue_partitions is not None else None
    if delivery is None:
        topic = broker.image.topics.get(tp[0])
        if action == PLACE or (topic is not None and topic.companion):
            raise CoordinatorLoadInProgress(f"the delivery state of {partition.name} is being loaded; try again")
        take(ShareStatePartition(partition=tp[1], error_code=0, leader_epoch=partition.leader_epoch))
        return
    if action == DESCRIBE:
        found = SharePartition.find(broker, group_id, tp)
        take(_described(found, group_id, delivery.now_ms))
        return

    def on_done(reply: Any) -> None:
        error = reply if isinstance(reply, PenstockError) else None
        take(_error_state(tp, error) if error else ShareStatePartition(partition=tp[1], error_code=0))
        delivery.check_waiters(group_id)

    if action == PLACE:
        if not partition.is_settled:
            raise OffsetNotAvailable(
                f"{partition.name} has a new leader whose high watermark is not current yet; try again (KIP-207)"
            )
        # Not beyond the high watermark: the next records would never be delivered.
        offset = min(max(offset, partition.log.start_offset), partition.high_watermark)
        delivery.runtime.submit(SetPosition(group_id, offset), on_done)
    elif action == FORGET:
        delivery.runtime.submit(DeleteGroup(group_id), on_done)
    else:
        raise InvalidRequest(f"ShareState has no action {action}")


def _described(found: SharePartition, group_id: str, now_ms: int) -> ShareStatePartition:
    partition, delivery = found.partition, found.delivery
    group = delivery.machine.group(group_id) if delivery is not None else None
    if group is None:
        return ShareStatePartition(
            partition=partition.name.partition, error_code=0, leader_epoch=partition.leader_epoch
        )
    end = partition.last_stable_offset if found.terms.is_stable else partition.high_watermark
    return ShareStatePartition(
        partition=partition.name.partition,
        error_code=0,
        start_offset=max(group.start, partition.log.start_offset),
        leader_epoch=partition.leader_epoch,
        lag=sum(group.counts(now_ms)) + max(0, end - max(group.end, partition.log.start_offset)),
    )


def _response(states: States) -> ShareStateResponse:
    topics: dict[bytes, list[ShareStatePartition]] = {}
    for (topic_id, _), state in states.items():
        topics.setdefault(topic_id, []).append(state)
    return ShareStateResponse(
        topics=[ShareStateTopicResult(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
    )


def _error_state(tp: TopicIdPartition, error: PenstockError) -> ShareStatePartition:
    return ShareStatePartition(partition=tp[1], error_code=error.code, error_message=error.message)


def _ignore(reply: object) -> None:
    pass

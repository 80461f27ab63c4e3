"""The delivery state of share groups, seen from their coordinators: partitions' leaders have it, and are asked."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.share.partition import SharePartition
from penstock.broker.share.sessions import Place
from penstock.cluster.administration import add_companions
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    CoordinatorLoadInProgress,
    InvalidRequest,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    PenstockError,
    UnknownTopicId,
)
from penstock.groups.commands import AddCompanions, DeliveryDropped, DropAtLeaders
from penstock.queues.commands import DeleteGroup, SetPosition
from penstock.wire.messages.share_state import (
    DESCRIBE,
    FORGET,
    PLACE,
    ShareStatePartition,
    ShareStatePlace,
    ShareStateRequest,
    ShareStateResponse,
    ShareStateTopic,
    ShareStateTopicResult,
)

logger = logging.getLogger(__name__)

PAUSE_S: Final = 0.1
TRY_S: Final = 10.0
"""How long leaders are asked again that are not ready."""
AGAIN: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
)
Wanted = Mapping[Place, int]
"""Partitions, and the offsets that a group is to begin at, where that is asked for."""
States = dict[Place, ShareStatePartition]


class ShareStates:
    """Asks the leaders, and does what coordinators of groups want done."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._adding: set[bytes] = set()
        self._dropping: set[str] = set()

    def perform(self, effect: Any) -> None:
        """An effect of a group's coordinator. What fails is asked for again."""
        spawn = self._broker.metadata.spawn
        if isinstance(effect, AddCompanions):
            new = effect.topic_ids - self._adding
            if new:
                self._adding |= new
                spawn(self._add(new))
        elif isinstance(effect, DropAtLeaders) and effect.group_id not in self._dropping:
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
            logger.warning("no_companion topic_id=%s reason=%r", topic_id.hex(), str(reason))

    async def _drop(self, effect: DropAtLeaders) -> None:
        broker, group_id = self._broker, effect.group_id
        try:
            places = places_of(broker, self._own(group_id, effect.topic_ids))
            states = await at_leaders(broker, FORGET, group_id, dict.fromkeys(places, -1))
        finally:
            self._dropping.discard(group_id)
        failed = [state for state in states.values() if state.error_code and not _is_gone(state)]
        if failed:
            logger.warning("share_state_not_dropped group=%r reason=%r", group_id, failed[0].error_message)
        else:
            dropped = DeliveryDropped(group_id=group_id, topic_ids=effect.topic_ids)
            broker.groups.submit(group_id, dropped, _ignore)

    def _own(self, group_id: str, topic_ids: Iterable[bytes]) -> list[bytes]:
        """Without the topic of the queue of that name: its delivery state is the queue's, and goes with it."""
        queue = self._broker.image.queues.get(group_id)
        return [topic_id for topic_id in topic_ids if queue is None or queue.topic_id != topic_id]


def _is_gone(state: ShareStatePartition) -> bool:
    return state.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def places_of(broker: Broker, topic_ids: Iterable[bytes]) -> list[Place]:
    """All partitions of topics, as far as these are there."""
    topics = (broker.image.topics.get(topic_id) for topic_id in topic_ids)
    return [(topic.topic_id, number) for topic in topics if topic is not None for number in topic.partitions]


async def at_leaders(broker: Broker, action: int, group_id: str, wanted: Wanted) -> States:
    """Ask the leaders of partitions, and again while they are not ready; what each said."""
    states: States = {}
    left = dict(wanted)
    deadline = asyncio.get_running_loop().time() + TRY_S
    while left:
        states |= await _ask_once(broker, action, group_id, left)
        left = {place: offset for place, offset in left.items() if states[place].error_code in AGAIN}
        if left and asyncio.get_running_loop().time() >= deadline:
            break
        if left:
            await asyncio.sleep(PAUSE_S)
    return states


async def _ask_once(broker: Broker, action: int, group_id: str, wanted: Wanted) -> States:
    by_leader: dict[int, dict[Place, int]] = {}
    states: States = {}
    for place, offset in wanted.items():
        try:
            by_leader.setdefault(_leader(broker, place), {})[place] = offset
        except PenstockError as error:
            states[place] = _refused(place, error)
    asked = [_ask_one(broker, node, action, group_id, share) for node, share in by_leader.items()]
    for found in await asyncio.gather(*asked):
        states |= found
    return states


def _leader(broker: Broker, place: Place) -> int:
    topic_id, number = place
    topic = broker.image.topics.get(topic_id)
    state = topic.partitions.get(number) if topic is not None else None
    if state is None:
        raise UnknownTopicId("the topic is gone, or has no such partition")
    if state.leader not in broker.image.brokers:
        raise NotLeaderOrFollower(f"partition {number} has no leader now; try again")
    return state.leader


async def _ask_one(broker: Broker, node: int, action: int, group_id: str, wanted: Wanted) -> States:
    topics: dict[bytes, list[ShareStatePlace]] = {}
    for (topic_id, number), offset in wanted.items():
        topics.setdefault(topic_id, []).append(ShareStatePlace(partition=number, offset=offset))
    request = ShareStateRequest(
        action=action,
        group_id=group_id,
        topics=[ShareStateTopic(topic_id=topic_id, partitions=places) for topic_id, places in topics.items()],
    )
    heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(reply: Any) -> None:
        if not heard.done():
            heard.set_result(reply)

    if node == broker.node_id:
        answer_here(broker, request, answer)
    else:
        broker.ask(node, request, answer)
    reply = await heard
    if isinstance(reply, PenstockError):
        # Whether it was done is not known. To do it again does no harm.
        lost = CoordinatorLoadInProgress(f"broker {node} cannot be reached: {reply}")
        return {place: _refused(place, lost) for place in wanted}
    return {(topic.topic_id, state.partition): state for topic in reply.topics for state in topic.partitions}


# -- at the leader


def answer_here(broker: Broker, request: ShareStateRequest, answer: Callable[[ShareStateResponse], None]) -> None:
    """What a coordinator asks about partitions that are led here; answered when it is committed."""
    places = {
        (topic.topic_id, entry.partition): entry.offset for topic in request.topics for entry in topic.partitions
    }
    found: States = {}

    def take(place: Place, state: ShareStatePartition) -> None:
        found[place] = state
        if len(found) == len(places):
            answer(_response(found))

    if not places:
        answer(_response(found))
    for place, offset in places.items():
        try:
            _do(broker, request.action, request.group_id, place, offset, partial(take, place))
        except PenstockError as error:
            take(place, _refused(place, error))


def _do(
    broker: Broker, action: int, group_id: str, place: Place, offset: int, take: Callable[[ShareStatePartition], None]
) -> None:
    partition = broker.partition("", *place)
    queue_partitions = broker.queue_partitions
    delivery = queue_partitions.find(*place) if queue_partitions is not None else None
    if delivery is None:
        topic = broker.image.topics.get(place[0])
        if action == PLACE or (topic is not None and topic.companion):
            raise CoordinatorLoadInProgress(f"the delivery state of {partition.name} is being read back; try again")
        take(ShareStatePartition(partition=place[1], error_code=0, leader_epoch=partition.leader_epoch))
        return
    if action == DESCRIBE:
        found = SharePartition.find(broker, group_id, place)
        take(_described(found, group_id, delivery.now_ms))
        return

    def on_done(reply: Any) -> None:
        error = reply if isinstance(reply, PenstockError) else None
        take(_refused(place, error) if error else ShareStatePartition(partition=place[1], error_code=0))
        delivery.look_soon(group_id)

    if action == PLACE:
        if not partition.is_settled:
            raise OffsetNotAvailable(f"{partition.name} has a new leader, which is still counting (KIP-207)")
        # Not beyond the end: what comes there next would never be delivered.
        offset = min(max(offset, partition.log.start_offset), partition.high_watermark)
        delivery.runtime.submit(SetPosition(group_id, offset), on_done)
    elif action == FORGET:
        delivery.runtime.submit(DeleteGroup(group_id), on_done)
    else:
        raise InvalidRequest(f"action {action} is not known")


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


def _refused(place: Place, error: PenstockError) -> ShareStatePartition:
    return ShareStatePartition(partition=place[1], error_code=error.code, error_message=error.message)


def _ignore(reply: object) -> None:
    """Nobody waits for it."""

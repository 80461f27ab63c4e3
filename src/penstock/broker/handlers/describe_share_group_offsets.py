"""DescribeShareGroupOffsets: returns start offsets and lag of share groups (KIP-932, KIP-1226)."""

from collections.abc import Sequence

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_share_coordinator
from penstock.broker.registry import handles
from penstock.broker.share.delivery_states import ask_leaders, partitions_of
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import PenstockError, TopicAuthorizationFailed, UnknownTopicOrPartition
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.commands import FindDeliveryState
from penstock.groups.errors import GroupIdNotFound
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.share_state import DESCRIBE, ShareStatePartition
from penstock.wire.schema import NIL_UUID


@handles(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, call: Call, broker: Broker
) -> DescribeShareGroupOffsetsResponse:
    groups = []
    for group in request.groups:
        try:
            topics = await _topics(call, broker, group)
        except PenstockError as error:
            groups.append(
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, topics=(), error_code=error.code, error_message=error.message
                )
            )
        else:
            groups.append(
                DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics, error_code=0)
            )
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


async def _topics(
    call: Call, broker: Broker, group: DescribeShareGroupOffsetsRequestGroup
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    call.check(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
    known = await _find_delivery_topics(broker, group.group_id)
    image = broker.image
    denied = [
        wanted
        for wanted in group.topics or ()
        if not call.allows(Operation.DESCRIBE, ResourceType.TOPIC, wanted.topic_name)
    ]
    if group.topics is None:
        tps = partitions_of(broker, [topic_id for topic_id in known if _is_shown(topic_id, call, broker)])
    else:
        named = [
            (image.by_name[wanted.topic_name], wanted)
            for wanted in group.topics
            if wanted.topic_name in image.by_name and wanted not in denied
        ]
        tps = [TopicIdPartition(topic.topic_id, number) for topic, wanted in named for number in wanted.partitions]
    states = await ask_leaders(broker, DESCRIBE, group.group_id, dict.fromkeys(tps, -1))
    found: dict[bytes, list[DescribeShareGroupOffsetsResponsePartition]] = {}
    for tp, state in states.items():
        found.setdefault(tp[0], []).append(_partition(tp, state))
    topics = [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=image.topics[topic_id].name, topic_id=topic_id, partitions=partitions
        )
        for topic_id, partitions in found.items()
        if topic_id in image.topics
    ]
    missing = [
        _error_result(wanted, UnknownTopicOrPartition(f"there is no topic {wanted.topic_name!r}"))
        for wanted in group.topics or ()
        if wanted.topic_name not in image.by_name and wanted not in denied
    ]
    refused = TopicAuthorizationFailed(f"{call.principal} may not describe this topic")
    return topics + missing + [_error_result(wanted, refused) for wanted in denied]


def _is_shown(topic_id: bytes, call: Call, broker: Broker) -> bool:
    topic = broker.image.topics.get(topic_id)
    return topic is not None and call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name, audited=False)


async def _find_delivery_topics(broker: Broker, group_id: str) -> Sequence[bytes]:
    """Returns the ids of the topics in which a share group has delivery state; if a queue has the group's name, also
    the id of the queue's topic."""
    queue = broker.image.queues.get(group_id)
    try:
        found = list(await ask_share_coordinator(broker, group_id, FindDeliveryState(group_id=group_id)))
    except GroupIdNotFound:
        if queue is None:
            raise
        found = []
    return found if queue is None else list(dict.fromkeys([*found, queue.topic_id]))


def _partition(tp: TopicIdPartition, state: ShareStatePartition) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=tp[1],
        start_offset=state.start_offset,
        leader_epoch=max(0, state.leader_epoch),
        lag=state.lag,
        error_code=state.error_code,
        error_message=state.error_message,
    )


def _error_result(
    wanted: DescribeShareGroupOffsetsRequestTopic, error: PenstockError
) -> DescribeShareGroupOffsetsResponseTopic:
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=number,
            start_offset=-1,
            leader_epoch=0,
            error_code=error.code,
            error_message=error.message,
        )
        for number in wanted.partitions
    ]
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=wanted.topic_name, topic_id=NIL_UUID, partitions=partitions
    )

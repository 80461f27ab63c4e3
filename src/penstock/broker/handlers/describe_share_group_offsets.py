"""DescribeShareGroupOffsets: how far share groups are, and how much is left for them (KIP-932, KIP-1226)."""

from collections.abc import Sequence

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.share.coordinator import ask_coordinator
from penstock.broker.share.delivery_states import at_leaders, places_of
from penstock.broker.share.sessions import Place
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.commands import FindDelivery
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
            topics = await _topics(broker, group)
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
    broker: Broker, group: DescribeShareGroupOffsetsRequestGroup
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    known = await _delivering(broker, group.group_id)
    image = broker.image
    if group.topics is None:
        places = places_of(broker, known)
    else:
        named = [
            (image.by_name[wanted.topic_name], wanted)
            for wanted in group.topics
            if wanted.topic_name in image.by_name
        ]
        places = [(topic.topic_id, number) for topic, wanted in named for number in wanted.partitions]
    states = await at_leaders(broker, DESCRIBE, group.group_id, dict.fromkeys(places, -1))
    found: dict[bytes, list[DescribeShareGroupOffsetsResponsePartition]] = {}
    for place, state in states.items():
        found.setdefault(place[0], []).append(_partition(place, state))
    topics = [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=image.topics[topic_id].name, topic_id=topic_id, partitions=partitions
        )
        for topic_id, partitions in found.items()
        if topic_id in image.topics
    ]
    return topics + [_unknown(wanted) for wanted in group.topics or () if wanted.topic_name not in image.by_name]


async def _delivering(broker: Broker, group_id: str) -> Sequence[bytes]:
    """The topics that a group has delivery state in. A queue is one, whether or not it ever had members."""
    queue = broker.image.queues.get(group_id)
    try:
        found = list(await ask_coordinator(broker, group_id, FindDelivery(group_id=group_id)))
    except GroupIdNotFound:
        if queue is None:
            raise
        found = []
    return found if queue is None else list(dict.fromkeys([*found, queue.topic_id]))


def _partition(place: Place, state: ShareStatePartition) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=place[1],
        start_offset=state.start_offset,
        leader_epoch=max(0, state.leader_epoch),
        lag=state.lag,
        error_code=state.error_code,
        error_message=state.error_message,
    )


def _unknown(wanted: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=number,
            start_offset=-1,
            leader_epoch=0,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"there is no topic {wanted.topic_name!r}",
        )
        for number in wanted.partitions
    ]
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=wanted.topic_name, topic_id=NIL_UUID, partitions=partitions
    )

"""AlterShareGroupOffsets: sets the start offsets of a share group without members (KIP-932)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_share_coordinator
from penstock.broker.permissions import READ_GROUP
from penstock.broker.registry import handles
from penstock.broker.share.delivery_states import ask_leaders
from penstock.cluster.administration import add_companion
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.commands import AddDeliveryState
from penstock.wire.keys import ApiKey
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from penstock.wire.messages.share_state import PLACE
from penstock.wire.schema import NIL_UUID


@handles(ApiKey.ALTER_SHARE_GROUP_OFFSETS, READ_GROUP)
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, call: Call, broker: Broker
) -> AlterShareGroupOffsetsResponse:
    try:
        outcome = await _alter(request, call, broker)
    except PenstockError as error:
        return AlterShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, responses=()
        )
    return AlterShareGroupOffsetsResponse(
        throttle_time_ms=0,
        error_code=0,
        responses=[
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=_topic_id(broker, topic.topic_name),
                partitions=[
                    _answer(number, outcome.get((topic.topic_name, number)))
                    for number in (entry.partition_index for entry in topic.partitions)
                ],
            )
            for topic in request.topics
        ],
    )


async def _alter(
    request: AlterShareGroupOffsetsRequest, call: Call, broker: Broker
) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Sets the start offsets; returns error code and message by (topic, partition)."""
    image = broker.image
    wanted: dict[TopicIdPartition, int] = {}
    names: dict[bytes, str] = {}
    outcome: dict[tuple[str, int], tuple[int, str | None]] = {}
    for topic in request.topics:
        known = image.by_name.get(topic.topic_name)
        for entry in topic.partitions:
            if not call.allows(Operation.READ, ResourceType.TOPIC, topic.topic_name):
                why = f"{call.principal} may not read topic {topic.topic_name!r}"
                outcome[topic.topic_name, entry.partition_index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED, why
            elif known is None or entry.partition_index not in known.partitions:
                why = f"topic {topic.topic_name!r} or its partition {entry.partition_index} does not exist"
                outcome[topic.topic_name, entry.partition_index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why
            elif known.is_internal:
                why = f"topic {topic.topic_name!r} is internal; share groups cannot read it"
                outcome[topic.topic_name, entry.partition_index] = ErrorCode.INVALID_TOPIC_EXCEPTION, why
            elif entry.start_offset < 0:
                why = f"start offset {entry.start_offset} is negative; expected 0 or more"
                outcome[topic.topic_name, entry.partition_index] = ErrorCode.INVALID_REQUEST, why
            else:
                wanted[TopicIdPartition(known.topic_id, entry.partition_index)] = entry.start_offset
                names[known.topic_id] = known.name
    # First the group records where it has delivery state, so that the state is deleted with the group.
    await ask_share_coordinator(broker, request.group_id, AddDeliveryState(group_id=request.group_id, topics=names))
    for topic_id in names:
        await add_companion(broker.metadata, topic_id)
    states = await ask_leaders(broker, PLACE, request.group_id, wanted)
    for (topic_id, number), state in states.items():
        outcome[names[topic_id], number] = state.error_code, state.error_message
    return outcome


def _answer(number: int, outcome: tuple[int, str | None] | None) -> AlterShareGroupOffsetsResponsePartition:
    code, message = outcome or (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    return AlterShareGroupOffsetsResponsePartition(partition_index=number, error_code=code, error_message=message)


def _topic_id(broker: Broker, name: str) -> bytes:
    known = broker.image.by_name.get(name)
    return known.topic_id if known is not None else NIL_UUID

"""StreamsGroupDescribe: describes streams groups and their members, each by its coordinator (KIP-1071)."""

from collections.abc import Awaitable
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_each
from penstock.broker.handlers.consumer_group_describe import GROUP_OPERATIONS
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.groups.errors import InvalidGroupId
from penstock.groups.streams.description import refused_streams_group
from penstock.wire.keys import ApiKey
from penstock.wire.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

NOT_STORED: Final = 1
"""Status code for a topology description that was requested but that the broker does not store (KIP-1331)."""


@handles(ApiKey.STREAMS_GROUP_DESCRIBE)
def streams_group_describe(
    request: StreamsGroupDescribeRequest, call: Call, broker: Broker
) -> Awaitable[None] | None:
    nameless = [
        refused_streams_group(group_id, InvalidGroupId("the group id is empty"))
        for group_id in request.group_ids
        if not group_id
    ]
    parts = [(group_id, _ask_for(group_id)) for group_id in dict.fromkeys(request.group_ids) if group_id]

    def merge(answers: list[Any]) -> StreamsGroupDescribeResponse:
        groups = nameless + [group for answer in answers for group in answer.groups]
        return StreamsGroupDescribeResponse(
            throttle_time_ms=0, groups=[_with_requested_fields(group, request) for group in groups]
        )

    return ask_each(broker, broker.groups, parts, call, _refused, merge)


def _ask_for(group_id: str) -> StreamsGroupDescribeRequest:
    return StreamsGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False)


def _refused(part: StreamsGroupDescribeRequest, error: PenstockError) -> StreamsGroupDescribeResponse:
    (group_id,) = part.group_ids
    return StreamsGroupDescribeResponse(throttle_time_ms=0, groups=(refused_streams_group(group_id, error),))


def _with_requested_fields(group: DescribedGroup, request: StreamsGroupDescribeRequest) -> DescribedGroup:
    """Returns the group description with the optional fields that the request asks for."""
    if group.error_code:
        return group
    return DescribedGroup(
        error_code=group.error_code,
        group_id=group.group_id,
        group_state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=group.topology,
        members=group.members,
        authorized_operations=GROUP_OPERATIONS
        if request.include_authorized_operations
        else group.authorized_operations,
        topology_description_status=NOT_STORED if request.include_topology_description else 0,
        assignor_name=group.assignor_name,
    )

"""ShareGroupDescribe: describes share groups and their members, each by its coordinator (KIP-932)."""

from collections.abc import Awaitable
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_each
from penstock.broker.handlers.consumer_group_describe import GROUP_OPERATIONS
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.groups.errors import InvalidGroupId
from penstock.groups.share.description import refused_share_group
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handles(ApiKey.SHARE_GROUP_DESCRIBE)
def share_group_describe(request: ShareGroupDescribeRequest, call: Call, broker: Broker) -> Awaitable[None] | None:
    nameless = [
        refused_share_group(group_id, InvalidGroupId("the group id is empty"))
        for group_id in request.group_ids
        if not group_id
    ]
    parts = [(group_id, _ask_for(group_id)) for group_id in dict.fromkeys(request.group_ids) if group_id]

    def merge(answers: list[Any]) -> ShareGroupDescribeResponse:
        groups = nameless + [group for answer in answers for group in answer.groups]
        if request.include_authorized_operations:
            groups = [_with_operations(group) for group in groups]
        return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)

    return ask_each(broker, broker.groups, parts, call, _refused, merge)


def _ask_for(group_id: str) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False)


def _refused(part: ShareGroupDescribeRequest, error: PenstockError) -> ShareGroupDescribeResponse:
    (group_id,) = part.group_ids
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=(refused_share_group(group_id, error),))


def _with_operations(group: DescribedGroup) -> DescribedGroup:
    if group.error_code:
        return group
    return DescribedGroup(
        error_code=group.error_code,
        group_id=group.group_id,
        group_state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=group.members,
        authorized_operations=GROUP_OPERATIONS,
    )

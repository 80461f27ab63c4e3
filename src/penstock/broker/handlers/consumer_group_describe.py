"""ConsumerGroupDescribe: describes consumer groups and their members, each by its coordinator (KIP-848)."""

from collections.abc import Awaitable
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_each
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.errors import InvalidGroupId
from penstock.wire.keys import ApiKey
from penstock.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

# Without an authorizer all operations are allowed; the numbers are those of Kafka's AclOperation.
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, call: Call, broker: Broker
) -> Awaitable[None] | None:
    nameless = [
        _refused(group_id, InvalidGroupId("the group id is empty")) for group_id in request.group_ids if not group_id
    ]
    parts = [(group_id, _ask_for(group_id)) for group_id in dict.fromkeys(request.group_ids) if group_id]

    def merge(answers: list[Any]) -> ConsumerGroupDescribeResponse:
        groups = nameless + [group for answer in answers for group in answer.groups]
        if request.include_authorized_operations:
            groups = [_with_operations(group) for group in groups]
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)

    return ask_each(broker, broker.groups, parts, call, _refused_part, merge)


def _ask_for(group_id: str) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False)


def _refused_part(part: ConsumerGroupDescribeRequest, error: PenstockError) -> ConsumerGroupDescribeResponse:
    (group_id,) = part.group_ids
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=(_refused(group_id, error),))


def _refused(group_id: str, error: PenstockError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _with_operations(group: DescribedGroup) -> DescribedGroup:
    if group.error_code != ErrorCode.NONE:
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

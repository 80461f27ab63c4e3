"""DescribeGroups: describes classic groups and their members; asks each group's coordinator."""

from collections.abc import Awaitable
from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import NOT_REQUESTED, ask_each
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.schema import with_field


@handles(ApiKey.DESCRIBE_GROUPS)
def describe_groups(request: DescribeGroupsRequest, call: Call, broker: Broker) -> Awaitable[None] | None:
    parts = [(group_id, DescribeGroupsRequest(groups=(group_id,))) for group_id in dict.fromkeys(request.groups)]
    return ask_each(broker, broker.groups, parts, Operation.DESCRIBE, call, _error_response, partial(_merge, call))


def _error_response(part: DescribeGroupsRequest, error: PenstockError) -> DescribeGroupsResponse:
    (group_id,) = part.groups
    group = DescribedGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=(),
    )
    return DescribeGroupsResponse(groups=(group,))


def _shown(group: DescribedGroup, call: Call) -> DescribedGroup:
    """Returns the description with the operations that this client may do with the group, if it asked for them."""
    if call.authorizer is None or group.authorized_operations == NOT_REQUESTED:
        return group
    operations = call.operations(ResourceType.GROUP, group.group_id)
    return with_field(group, "authorized_operations", operations)


def _merge(call: Call, answers: list[Any]) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_shown(group, call) for answer in answers for group in answer.groups])

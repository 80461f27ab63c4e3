"""DescribeGroups: describes classic groups and their members; asks each group's coordinator."""

from collections.abc import Awaitable
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask_each
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


@handles(ApiKey.DESCRIBE_GROUPS)
def describe_groups(request: DescribeGroupsRequest, call: Call, broker: Broker) -> Awaitable[None] | None:
    parts = [(group_id, DescribeGroupsRequest(groups=(group_id,))) for group_id in dict.fromkeys(request.groups)]
    return ask_each(broker, broker.groups, parts, call, _error_response, _merge)


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


def _merge(answers: list[Any]) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[group for answer in answers for group in answer.groups])

"""ShareGroupDescribe: describes share groups and their members; asks each group's coordinator (KIP-932)."""

from collections.abc import Awaitable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import describe_each
from penstock.broker.registry import handles
from penstock.groups.share.group import ShareGroup
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest


@handles(ApiKey.SHARE_GROUP_DESCRIBE)
def share_group_describe(request: ShareGroupDescribeRequest, call: Call, broker: Broker) -> Awaitable[None] | None:
    return describe_each(broker, ShareGroup, request, call)

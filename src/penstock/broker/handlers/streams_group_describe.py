"""StreamsGroupDescribe: describes streams groups and their members; asks each group's coordinator (KIP-1071)."""

from collections.abc import Awaitable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import describe_each
from penstock.broker.registry import handles
from penstock.groups.streams.group import StreamsGroup
from penstock.wire.keys import ApiKey
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest


@handles(ApiKey.STREAMS_GROUP_DESCRIBE)
def streams_group_describe(
    request: StreamsGroupDescribeRequest, call: Call, broker: Broker
) -> Awaitable[None] | None:
    return describe_each(broker, StreamsGroup, request, call)

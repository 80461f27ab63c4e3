"""ConsumerGroupDescribe: describes consumer groups and their members; asks each group's coordinator (KIP-848)."""

from collections.abc import Awaitable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import describe_each
from penstock.broker.registry import handles
from penstock.groups.consumer.group import ConsumerGroup
from penstock.wire.keys import ApiKey
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, call: Call, broker: Broker
) -> Awaitable[None] | None:
    return describe_each(broker, ConsumerGroup, request, call)

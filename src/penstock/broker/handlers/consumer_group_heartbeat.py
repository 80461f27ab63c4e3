"""ConsumerGroupHeartbeat: a member joins, stays in or leaves a consumer group (KIP-848)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask, error_response
from penstock.broker.permissions import READ_GROUP, hidden_topic
from penstock.broker.registry import handles
from penstock.wire.keys import ApiKey
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT, READ_GROUP)
def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call, broker: Broker) -> None:
    on_error = error_response(ConsumerGroupHeartbeatResponse, member_epoch=0, heartbeat_interval_ms=0)
    hidden = hidden_topic(request.subscribed_topic_names or (), call)
    if hidden is not None:
        call.answer(on_error(hidden))
        return
    ask(broker.groups, request.group_id, request, call, on_error)

"""StreamsGroupHeartbeat: a member joins, stays in or leaves a streams group (KIP-1071)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask, error_response
from penstock.broker.registry import handles
from penstock.wire.keys import ApiKey
from penstock.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse


@handles(ApiKey.STREAMS_GROUP_HEARTBEAT)
def streams_group_heartbeat(request: StreamsGroupHeartbeatRequest, call: Call, broker: Broker) -> None:
    on_error = error_response(StreamsGroupHeartbeatResponse, member_id="", member_epoch=0, heartbeat_interval_ms=0)
    ask(broker.groups, request.group_id, request, call, on_error)

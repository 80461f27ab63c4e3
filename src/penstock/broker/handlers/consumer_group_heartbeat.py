"""ConsumerGroupHeartbeat: a member joins, stays in or leaves a consumer group (KIP-848)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handles(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, call: Call, broker: Broker) -> None:
    ask(broker.groups, request.group_id, request, call, _refused)


def _refused(error: PenstockError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )

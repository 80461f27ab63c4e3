"""ShareGroupHeartbeat: a member joins, stays in or leaves a share group (KIP-932)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.coordinator_requests import ask
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


@handles(ApiKey.SHARE_GROUP_HEARTBEAT)
def share_group_heartbeat(request: ShareGroupHeartbeatRequest, call: Call, broker: Broker) -> None:
    ask(broker.groups, request.group_id, request, call, _refused)


def _refused(error: PenstockError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )

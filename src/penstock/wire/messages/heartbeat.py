"""Kafka API 12, Heartbeat."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Int16, Int32, String, field, request, response


@request(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)


@response(ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16

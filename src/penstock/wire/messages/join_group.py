"""Kafka API 11, JoinGroup."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Bytes, Int16, Int32, String, field, request, response, struct


@struct
class JoinGroupRequestProtocol:
    name: String
    metadata: Bytes


@request(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1)
    member_id: String
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String
    protocols: Array[JoinGroupRequestProtocol]
    reason: String | None = field("8+", default=None)


@struct
class JoinGroupResponseMember:
    member_id: String
    group_instance_id: String | None = field("5+", default=None)
    metadata: Bytes


@response(ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Int32 = field("2+", default=0)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Bool = field("9+", default=False)
    member_id: String
    members: Array[JoinGroupResponseMember]

"""Kafka API 13, LeaveGroup."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, field, request, response, struct


@struct
class MemberIdentity:
    member_id: String
    group_instance_id: String | None = field(default=None)
    reason: String | None = field("5+", default=None)


@request(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: String
    member_id: String = field("0-2", default="")
    members: Array[MemberIdentity] = field("3+", default=())


@struct
class MemberResponse:
    member_id: String
    group_instance_id: String | None
    error_code: Int16


@response(ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16
    members: Array[MemberResponse] = field("3+", default=())

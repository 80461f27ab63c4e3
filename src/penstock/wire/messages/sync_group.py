"""Kafka API 14, SyncGroup."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bytes, Int16, Int32, String, field, request, response, struct


@struct
class SyncGroupRequestAssignment:
    member_id: String
    assignment: Bytes


@request(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignments: Array[SyncGroupRequestAssignment]


@response(ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16
    protocol_type: String | None = field("5+", default=None)
    protocol_name: String | None = field("5+", default=None)
    assignment: Bytes

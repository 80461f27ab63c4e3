"""Kafka API 15, DescribeGroups."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Bytes, Int16, Int32, String, field, request, response, struct


@request(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: Array[String]
    include_authorized_operations: Bool = field("3+", default=False)


@struct
class DescribedGroupMember:
    member_id: String
    group_instance_id: String | None = field("4+", default=None)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field("6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: Array[DescribedGroupMember]
    authorized_operations: Int32 = field("3+", default=-2147483648)


@response(ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    groups: Array[DescribedGroup]

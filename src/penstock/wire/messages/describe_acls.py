"""Kafka API 29, DescribeAcls."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, String, field, request, response, struct


@request(ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@struct
class AclDescription:
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource:
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    acls: Array[AclDescription]


@response(ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    resources: Array[DescribeAclsResource]

"""Kafka API 31, DeleteAcls."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, String, field, request, response, struct


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@request(ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: Array[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult:
    error_code: Int16
    error_message: String | None
    matching_acls: Array[DeleteAclsMatchingAcl]


@response(ApiKey.DELETE_ACLS, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: Int32
    filter_results: Array[DeleteAclsFilterResult]

"""Kafka API 30, CreateAcls."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, String, field, request, response, struct


@struct
class AclCreation:
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@request(ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: Array[AclCreation]


@struct
class AclCreationResult:
    error_code: Int16
    error_message: String | None


@response(ApiKey.CREATE_ACLS, versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32
    results: Array[AclCreationResult]

"""Kafka API 42, DeleteGroups."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, field, request, response, struct


@request(ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: Array[String]


@struct
class DeletableGroupResult:
    group_id: String
    error_code: Int16
    error_message: String | None = field("3+", default=None)


@response(ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32
    results: Array[DeletableGroupResult]

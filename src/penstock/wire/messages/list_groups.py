"""Kafka API 16, ListGroups."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, field, request, response, struct


@request(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: Array[String] = field("4+", default=())
    types_filter: Array[String] = field("5+", default=())


@struct
class ListedGroup:
    group_id: String
    protocol_type: String
    group_state: String = field("4+", default="")
    group_type: String = field("5+", default="")


@response(ApiKey.LIST_GROUPS, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16
    groups: Array[ListedGroup]

"""Kafka API 10, FindCoordinator."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, String, field, request, response, struct


@request(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: Array[String] = field("4+", default=())


@struct
class Coordinator:
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None


@response(ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = field("1+", default=0)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="")
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: Array[Coordinator] = field("4+", default=())

"""Kafka API 74, ListConfigResources (KIP-1142); version 0 is ListClientMetricsResources (KIP-714)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, String, field, request, response, struct

CLIENT_METRICS = 16


@request(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: Array[Int8] = field("1+", default=[])


@struct
class ListedConfigResource:
    resource_name: String
    resource_type: Int8 = field("1+", default=CLIENT_METRICS)


@response(ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: Array[ListedConfigResource]

"""Kafka API 44, IncrementalAlterConfigs."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int8, Int16, Int32, String, request, response, struct


@struct
class AlterableConfig:
    name: String
    config_operation: Int8
    value: String | None


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: String
    configs: Array[AlterableConfig]


@request(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: Array[AlterConfigsResource]
    validate_only: Bool


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


@response(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32
    responses: Array[AlterConfigsResourceResponse]

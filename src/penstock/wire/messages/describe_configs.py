"""Kafka API 32, DescribeConfigs."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int8, Int16, Int32, String, field, request, response, struct


@struct
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: String
    configuration_keys: Array[String] | None


@request(ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsRequest:
    resources: Array[DescribeConfigsResource]
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = field("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: String
    value: String | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool
    synonyms: Array[DescribeConfigsSynonym]
    config_type: Int8 = field("3+", default=0)
    documentation: String | None = field("3+", default="")


@struct
class DescribeConfigsResult:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: Array[DescribeConfigsResourceResult]


@response(ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32
    results: Array[DescribeConfigsResult]

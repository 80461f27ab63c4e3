"""Kafka API 18, ApiVersions."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, Int64, String, field, request, response, struct


@request(ApiKey.API_VERSIONS, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    client_software_name: String = field("3+", default="")
    client_software_version: String = field("3+", default="")
    cluster_id: String | None = field("5+", default=None)
    node_id: Int32 = field("5+", default=-1)


@struct
class ApiVersion:
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    name: String
    max_version_level: Int16
    min_version_level: Int16


@response(ApiKey.API_VERSIONS, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    error_code: Int16
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0)
    supported_features: Array[SupportedFeatureKey] = field("3+", tag=0, default=())
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1)
    finalized_features: Array[FinalizedFeatureKey] = field("3+", tag=2, default=())
    zk_migration_ready: Bool = field("3+", tag=3, default=False)

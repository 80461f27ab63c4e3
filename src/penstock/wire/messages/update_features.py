"""Kafka API 57, UpdateFeatures (KIP-584, KIP-778)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int8, Int16, Int32, String, field, request, response, struct


@struct
class FeatureUpdate:
    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


@request(ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = field(default=60000)
    feature_updates: Array[FeatureUpdate]
    validate_only: Bool = field("1+", default=False)


@struct
class FeatureUpdateResult:
    feature: String
    error_code: Int16
    error_message: String | None


@response(ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: Array[FeatureUpdateResult] = field("0-1", default=[])

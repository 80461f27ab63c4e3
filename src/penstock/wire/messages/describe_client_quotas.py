"""Kafka API 48, DescribeClientQuotas (KIP-546)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Float64, Int8, Int16, Int32, String, request, response, struct


@struct
class QuotaComponent:
    entity_type: String
    match_type: Int8
    match: String | None


@request(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: Array[QuotaComponent]
    strict: Bool


@struct
class QuotaEntity:
    entity_type: String
    entity_name: String | None


@struct
class QuotaValue:
    key: String
    value: Float64


@struct
class QuotaEntry:
    entity: Array[QuotaEntity]
    values: Array[QuotaValue]


@response(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: Array[QuotaEntry] | None

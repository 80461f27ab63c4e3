"""Kafka API 49, AlterClientQuotas (KIP-546)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Float64, Int16, Int32, String, request, response, struct


@struct
class AlteredQuotaEntity:
    entity_type: String
    entity_name: String | None


@struct
class QuotaOp:
    key: String
    value: Float64
    remove: Bool


@struct
class QuotaAlteration:
    entity: Array[AlteredQuotaEntity]
    ops: Array[QuotaOp]


@request(ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: Array[QuotaAlteration]
    validate_only: Bool


@struct
class QuotaAlterationResult:
    error_code: Int16
    error_message: String | None
    entity: Array[AlteredQuotaEntity]


@response(ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32
    entries: Array[QuotaAlterationResult]

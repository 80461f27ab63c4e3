"""Kafka API 40, ExpireDelegationToken (KIP-48)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Bytes, Int16, Int32, Int64, request, response


@request(ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Bytes
    expiry_time_period_ms: Int64


@response(ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32

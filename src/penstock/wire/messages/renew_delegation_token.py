"""Kafka API 39, RenewDelegationToken (KIP-48)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Bytes, Int16, Int32, Int64, request, response


@request(ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Bytes
    renew_period_ms: Int64


@response(ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32

"""Kafka API 36, SaslAuthenticate (KIP-152, KIP-368)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Bytes, Int16, Int64, String, field, request, response


@request(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes


@response(ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field("1+", default=0)

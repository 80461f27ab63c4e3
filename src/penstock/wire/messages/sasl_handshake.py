"""Kafka API 17, SaslHandshake."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, String, request, response


@request(ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: String


@response(ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: Int16
    mechanisms: Array[String]

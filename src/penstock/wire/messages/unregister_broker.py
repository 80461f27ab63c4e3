"""Kafka API 64, UnregisterBroker (KIP-500)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Int16, Int32, String, request, response


@request(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: Int32


@response(ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None

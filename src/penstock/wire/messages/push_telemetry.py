"""Kafka API 72, PushTelemetry (KIP-714)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Bool, Bytes, Int8, Int16, Int32, Uuid, request, response


@request(ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


@response(ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: Int32
    error_code: Int16

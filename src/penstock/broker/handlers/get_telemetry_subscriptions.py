"""GetTelemetrySubscriptions (KIP-714): returns the metrics that a client must push, and the push interval."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.telemetry.instances import COMPRESSIONS
from penstock.wire.keys import ApiKey
from penstock.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.wire.schema import NIL_UUID


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, call: Call, broker: Broker
) -> GetTelemetrySubscriptionsResponse:
    try:
        instance = broker.telemetry.find_subscription(request.client_instance_id, call.client_id, call.peer)
    except PenstockError as error:
        return GetTelemetrySubscriptionsResponse(
            throttle_time_ms=0,
            error_code=error.code,
            client_instance_id=NIL_UUID,
            subscription_id=0,
            accepted_compression_types=(),
            push_interval_ms=0,
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=(),
        )
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=COMPRESSIONS,
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=broker.telemetry.max_bytes,
        # Prometheus needs cumulative values; a lost push loses no data then.
        delta_temporality=False,
        requested_metrics=instance.wanted.metrics,
    )

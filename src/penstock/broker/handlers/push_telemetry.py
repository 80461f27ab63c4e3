"""PushTelemetry (KIP-714): stores the metrics that a client pushes; the broker exposes them at /metrics."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@handles(ApiKey.PUSH_TELEMETRY)
async def push_telemetry(request: PushTelemetryRequest, call: Call, broker: Broker) -> PushTelemetryResponse:
    code = ErrorCode.NONE
    try:
        await broker.telemetry.push(request, call.client_id, call.peer)
    except PenstockError as error:
        code = error.code
    return PushTelemetryResponse(throttle_time_ms=0, error_code=code)

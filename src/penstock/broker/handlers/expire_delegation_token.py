"""ExpireDelegationToken: refused, as by Kafka on a listener without authentication."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN)
def expire_delegation_token(
    request: ExpireDelegationTokenRequest, call: Call, broker: Broker
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1, throttle_time_ms=0
    )

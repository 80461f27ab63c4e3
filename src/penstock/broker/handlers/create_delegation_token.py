"""CreateDelegationToken: refused, as by Kafka on a listener without authentication."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


@handles(ApiKey.CREATE_DELEGATION_TOKEN)
def create_delegation_token(
    request: CreateDelegationTokenRequest, call: Call, broker: Broker
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type="",
        principal_name="",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )

"""ExpireDelegationToken (KIP-48): shortens the lifetime of a token, or removes it. Sessions that it began go on."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.token_requests import NO_TIME, check_client
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, call: Call, broker: Broker
) -> ExpireDelegationTokenResponse:
    try:
        check_client(call)
        token = await broker.delegation_tokens.expire(
            bytes(request.hmac), by=call.principal, period_ms=request.expiry_time_period_ms
        )
    except PenstockError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME, throttle_time_ms=0)
    call.note_changes([token.token_id, token.owner])
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expires_ms, throttle_time_ms=0
    )

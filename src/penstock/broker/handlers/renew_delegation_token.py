"""RenewDelegationToken (KIP-48): extends a token of the client, or one that it is a renewer of."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.token_requests import NO_TIME, check_client
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


@handles(ApiKey.RENEW_DELEGATION_TOKEN)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, call: Call, broker: Broker
) -> RenewDelegationTokenResponse:
    try:
        check_client(call)
        token = await broker.delegation_tokens.renew(
            bytes(request.hmac), by=call.principal, period_ms=request.renew_period_ms
        )
    except PenstockError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME, throttle_time_ms=0)
    call.note_changes([token.token_id, token.owner])
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expires_ms, throttle_time_ms=0
    )

"""SaslAuthenticate: one message of a SASL login, after a SaslHandshake."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

NO_SASL = "This listener has no SASL: the client needs no login here."


@handles(ApiKey.SASL_AUTHENTICATE)
async def sasl_authenticate(request: SaslAuthenticateRequest, call: Call, broker: Broker) -> SaslAuthenticateResponse:
    if call.login is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=NO_SASL, auth_bytes=b""
        )
    answer = await call.login.step(bytes(request.auth_bytes))
    call.hang_up = answer.code != ErrorCode.NONE
    return SaslAuthenticateResponse(
        error_code=answer.code,
        error_message=answer.message,
        auth_bytes=answer.token or b"",
        session_lifetime_ms=answer.lifetime_ms,
    )

"""SaslHandshake: the client chooses a SASL mechanism, when it connects or to authenticate again (KIP-368)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(ApiKey.SASL_HANDSHAKE)
def sasl_handshake(request: SaslHandshakeRequest, call: Call, broker: Broker) -> SaslHandshakeResponse:
    login = call.login
    if login is None or (call.version == 0 and login.principal):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())
    code = login.begin(request.mechanism)
    call.hang_up = code != ErrorCode.NONE
    return SaslHandshakeResponse(error_code=code, mechanisms=login.mechanisms)

"""UnregisterBroker: always refused; a broker is unregistered automatically when it stops."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@handles(ApiKey.UNREGISTER_BROKER, in_cluster(Operation.ALTER))
def unregister_broker(request: UnregisterBrokerRequest, call: Call, broker: Broker) -> UnregisterBrokerResponse:
    if request.broker_id in broker.image.brokers:
        code = ErrorCode.INVALID_REQUEST
        message = f"broker {request.broker_id} is running; stop it, and its registration expires automatically"
    else:
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        message = f"Broker ID {request.broker_id} is not currently registered"
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=message)

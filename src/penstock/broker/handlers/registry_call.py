"""RegistryCall: answers a request to the schema registry that another broker received. Penstock's own API."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import CLUSTER_ACTION
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.registry_call import RegistryCallRequest, RegistryCallResponse


@handles(ApiKey.REGISTRY_CALL, CLUSTER_ACTION)
async def registry_call(request: RegistryCallRequest, call: Call, broker: Broker) -> RegistryCallResponse:
    try:
        return await broker.answer_registry_call(request)
    except PenstockError as error:
        return RegistryCallResponse(error_code=error.code, error_message=error.message)

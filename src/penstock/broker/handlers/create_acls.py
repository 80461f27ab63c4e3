"""CreateAcls: refused, as by Kafka without an authorizer."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.security_disabled import NO_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(ApiKey.CREATE_ACLS)
def create_acls(request: CreateAclsRequest, call: Call, broker: Broker) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(throttle_time_ms=0, results=[refused] * len(request.creations))

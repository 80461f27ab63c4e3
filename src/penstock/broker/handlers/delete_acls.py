"""DeleteAcls: refused, as by Kafka without an authorizer."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.security_disabled import NO_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@handles(ApiKey.DELETE_ACLS)
def delete_acls(request: DeleteAclsRequest, call: Call, broker: Broker) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused] * len(request.filters))

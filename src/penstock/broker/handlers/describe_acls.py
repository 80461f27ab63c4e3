"""DescribeAcls: refused, as by Kafka without an authorizer."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.security_disabled import NO_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(ApiKey.DESCRIBE_ACLS)
def describe_acls(request: DescribeAclsRequest, call: Call, broker: Broker) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
    )

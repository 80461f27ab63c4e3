"""DescribeClientQuotas: returns an empty list, as Penstock has no quotas."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, in_cluster(Operation.DESCRIBE_CONFIGS))
def describe_client_quotas(
    request: DescribeClientQuotasRequest, call: Call, broker: Broker
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, entries=[])

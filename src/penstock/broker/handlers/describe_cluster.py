"""DescribeCluster: returns the brokers and the controller."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.handlers.metadata import NOT_REQUESTED
from penstock.broker.registry import handles
from penstock.foundation.acls import CLUSTER_NAME, ResourceType
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


@handles(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(request: DescribeClusterRequest, call: Call, broker: Broker) -> DescribeClusterResponse:
    image = broker.image
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=(
                "this is a broker; controllers have no separate listener"
                if is_known
                else f"endpoint type {request.endpoint_type} does not exist; expected 1 (brokers) or 2 (controllers)"
            ),
            cluster_id=image.cluster_id,
            brokers=(),
        )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=image.cluster_id,
        controller_id=broker.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=known.node_id, host=at.host, port=at.port, rack=known.rack)
            for known in image.brokers.values()
            if (at := known.endpoint(call.listener)) is not None
        ],
        cluster_authorized_operations=(
            call.operations(ResourceType.CLUSTER, CLUSTER_NAME)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )

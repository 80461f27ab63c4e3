"""Kafka API 60, DescribeCluster."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int8, Int16, Int32, String, field, request, response, struct


@request(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


@struct
class DescribeClusterBroker:
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)
    is_fenced: Bool = field("2+", default=False)


@response(ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: Array[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-2147483648)

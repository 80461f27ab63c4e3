"""Kafka API 45, AlterPartitionReassignments (KIP-455)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, String, field, request, response, struct


@struct
class ReassignablePartition:
    partition_index: Int32
    replicas: Array[Int32] | None = field(default=None)


@struct
class ReassignableTopic:
    name: String
    partitions: Array[ReassignablePartition]


@request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: Array[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: String | None


@struct
class ReassignableTopicResponse:
    name: String
    partitions: Array[ReassignablePartitionResponse]


@response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = field("1+", default=True)
    error_code: Int16
    error_message: String | None
    responses: Array[ReassignableTopicResponse]

"""Kafka API 46, ListPartitionReassignments (KIP-455)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, field, request, response, struct


@struct
class ListPartitionReassignmentsTopics:
    name: String
    partition_indexes: Array[Int32]


@request(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = field(default=60000)
    topics: Array[ListPartitionReassignmentsTopics] | None = field(default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: Array[Int32]
    adding_replicas: Array[Int32]
    removing_replicas: Array[Int32]


@struct
class OngoingTopicReassignment:
    name: String
    partitions: Array[OngoingPartitionReassignment]


@response(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    topics: Array[OngoingTopicReassignment]

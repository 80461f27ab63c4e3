"""Kafka API 43, ElectLeaders (KIP-183, KIP-460)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, String, field, request, response, struct


@struct
class TopicPartitions:
    topic: String
    partitions: Array[Int32]


@request(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: Int8 = field("1+", default=0)
    topic_partitions: Array[TopicPartitions] | None
    timeout_ms: Int32 = field(default=60000)


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: String | None


@struct
class ReplicaElectionResult:
    topic: String
    partition_result: Array[PartitionResult]


@response(ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32
    error_code: Int16 = field("1+", default=0)
    replica_election_results: Array[ReplicaElectionResult]

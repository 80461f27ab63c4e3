"""Kafka API 61, DescribeProducers."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, field, request, response, struct


@struct
class TopicRequest:
    name: String
    partition_indexes: Array[Int32]


@request(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: Array[TopicRequest]


@struct
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    active_producers: Array[ProducerState]


@struct
class TopicResponse:
    name: String
    partitions: Array[PartitionResponse]


@response(ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32
    topics: Array[TopicResponse]

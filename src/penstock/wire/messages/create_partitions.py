"""Kafka API 37, CreatePartitions."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, String, field, request, response, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: Array[Int32]


@struct
class CreatePartitionsTopic:
    name: String
    count: Int32
    assignments: Array[CreatePartitionsAssignment] | None


@request(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: Array[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


@struct
class CreatePartitionsTopicResult:
    name: String
    error_code: Int16
    error_message: String | None = field(default=None)


@response(ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: Int32
    results: Array[CreatePartitionsTopicResult]

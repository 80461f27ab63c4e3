"""Kafka API 47, OffsetDelete."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, request, response, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: String
    partitions: Array[OffsetDeleteRequestPartition]


@request(ApiKey.OFFSET_DELETE, versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: String
    topics: Array[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    name: String
    partitions: Array[OffsetDeleteResponsePartition]


@response(ApiKey.OFFSET_DELETE, versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: Int16
    throttle_time_ms: Int32
    topics: Array[OffsetDeleteResponseTopic]

"""Kafka API 91, AlterShareGroupOffsets."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, Uuid, field, request, response, struct


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: String
    partitions: Array[AlterShareGroupOffsetsRequestPartition]


@request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: String
    topics: Array[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    partitions: Array[AlterShareGroupOffsetsResponsePartition]


@response(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: Array[AlterShareGroupOffsetsResponseTopic]

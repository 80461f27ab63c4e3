"""Kafka API 90, DescribeShareGroupOffsets."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, Uuid, field, request, response, struct


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: String
    partitions: Array[Int32]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: String
    topics: Array[DescribeShareGroupOffsetsRequestTopic] | None


@request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: Array[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = field("1+", default=-1)
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    partitions: Array[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: String
    topics: Array[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: String | None = field(default=None)


@response(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32
    groups: Array[DescribeShareGroupOffsetsResponseGroup]

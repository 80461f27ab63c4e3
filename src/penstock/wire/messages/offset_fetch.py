"""Kafka API 9, OffsetFetch."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    NIL_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    Int64,
    String,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class OffsetFetchRequestTopic:
    name: String
    partition_indexes: Array[Int32]


@struct
class OffsetFetchRequestTopics:
    name: String = field("8-9", default="")
    topic_id: Uuid = field("10+", default=NIL_UUID)
    partition_indexes: Array[Int32]


@struct
class OffsetFetchRequestGroup:
    group_id: String
    member_id: String | None = field("9+", default=None)
    member_epoch: Int32 = field("9+", default=-1)
    topics: Array[OffsetFetchRequestTopics] | None


@request(ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: String = field("1-7", default="")
    topics: Array[OffsetFetchRequestTopic] | None = field("1-7", nullable="2+", default=())
    groups: Array[OffsetFetchRequestGroup] = field("8+", default=())
    require_stable: Bool = field("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("5+", default=-1)
    metadata: String | None
    error_code: Int16


@struct
class OffsetFetchResponseTopic:
    name: String
    partitions: Array[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: String | None
    error_code: Int16


@struct
class OffsetFetchResponseTopics:
    name: String = field("8-9", default="")
    topic_id: Uuid = field("10+", default=NIL_UUID)
    partitions: Array[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    group_id: String
    topics: Array[OffsetFetchResponseTopics]
    error_code: Int16 = field(default=0)


@response(ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Int32 = field("3+", default=0)
    topics: Array[OffsetFetchResponseTopic] = field("1-7", default=())
    error_code: Int16 = field("2-7", default=0)
    groups: Array[OffsetFetchResponseGroup] = field("8+", default=())

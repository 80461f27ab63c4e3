"""Kafka API 1, Fetch."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    NIL_UUID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class ReplicaState:
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = field("9+", default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field("17+", tag=0, default=NIL_UUID)
    high_watermark: Int64 = field("18+", tag=1, default=9223372036854775807)


@struct
class FetchTopic:
    topic: String = field("4-12", default="")
    topic_id: Uuid = field("13+", default=NIL_UUID)
    partitions: Array[FetchPartition]


@struct
class ForgottenTopic:
    topic: String = field("7-12", default="")
    topic_id: Uuid = field("13+", default=NIL_UUID)
    partitions: Array[Int32]


@request(ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: String | None = field("12+", tag=0, default=None)
    replica_id: Int32 = field("4-14", default=-1)
    replica_state: ReplicaState | None = field("15+", nullable="none", tag=1, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2147483647)
    isolation_level: Int8 = field(default=0)
    session_id: Int32 = field("7+", default=0)
    session_epoch: Int32 = field("7+", default=-1)
    topics: Array[FetchTopic]
    forgotten_topics_data: Array[ForgottenTopic] = field("7+", default=())
    rack_id: String = field("11+", default="")


@struct
class EpochEndOffset:
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field("12+", nullable="none", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field("12+", nullable="none", tag=1, default=None)
    snapshot_id: SnapshotId | None = field("12+", nullable="none", tag=2, default=None)
    aborted_transactions: Array[AbortedTransaction] | None
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None


@struct
class FetchableTopicResponse:
    topic: String = field("4-12", default="")
    topic_id: Uuid = field("13+", default=NIL_UUID)
    partitions: Array[PartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@response(ApiKey.FETCH, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: Int32
    error_code: Int16 = field("7+", default=0)
    session_id: Int32 = field("7+", default=0)
    responses: Array[FetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint] = field("16+", tag=0, default=())

"""Kafka API 3, Metadata."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    NIL_UUID,
    Array,
    Bool,
    Int16,
    Int32,
    String,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class MetadataRequestTopic:
    topic_id: Uuid = field("10+", default=NIL_UUID)
    name: String | None = field(nullable="10+")


@request(ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: Array[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field("1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field("7+", default=-1)
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    offline_replicas: Array[Int32] = field("5+", default=())


@struct
class MetadataResponseTopic:
    error_code: Int16
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field("10+", default=NIL_UUID)
    is_internal: Bool = field("1+", default=False)
    partitions: Array[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


@response(ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Int32 = field("3+", default=0)
    brokers: Array[MetadataResponseBroker]
    cluster_id: String | None = field("2+", default=None)
    controller_id: Int32 = field("1+", default=-1)
    topics: Array[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0)

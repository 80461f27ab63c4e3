"""Kafka API 19, CreateTopics."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    NIL_UUID,
    Array,
    Bool,
    Int8,
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
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: Array[Int32]


@struct
class CreatableTopicConfig:
    name: String
    value: String | None


@struct
class CreatableTopic:
    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: Array[CreatableReplicaAssignment]
    configs: Array[CreatableTopicConfig]


@request(ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: Array[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)


@struct
class CreatableTopicConfigs:
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool


@struct
class CreatableTopicResult:
    name: String
    topic_id: Uuid = field("7+", default=NIL_UUID)
    error_code: Int16
    error_message: String | None
    topic_config_error_code: Int16 = field("5+", tag=0, default=0)
    num_partitions: Int32 = field("5+", default=-1)
    replication_factor: Int16 = field("5+", default=-1)
    configs: Array[CreatableTopicConfigs] | None = field("5+", default=())


@response(ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32
    topics: Array[CreatableTopicResult]

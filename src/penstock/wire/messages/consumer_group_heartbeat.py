"""Kafka API 68, ConsumerGroupHeartbeat."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, Uuid, field, request, response, struct


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: Array[Int32]


@request(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: Array[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field("1+", default=None)
    server_assignor: String | None = field(default=None)
    topic_partitions: Array[TopicPartitions] | None = field(default=None)


@struct
class Assignment:
    topic_partitions: Array[TopicPartitions]


@response(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)

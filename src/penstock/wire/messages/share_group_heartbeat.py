"""Kafka API 76, ShareGroupHeartbeat."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, String, Uuid, field, request, response, struct


@request(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = field(default=None)
    subscribed_topic_names: Array[String] | None = field(default=None)


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: Array[Int32]


@struct
class Assignment:
    topic_partitions: Array[TopicPartitions]


@response(ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)

"""Kafka API 69, ConsumerGroupDescribe."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int8, Int16, Int32, String, Uuid, field, request, response, struct


@request(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: Array[String]
    include_authorized_operations: Bool


@struct
class TopicPartitions:
    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@struct
class Assignment:
    topic_partitions: Array[TopicPartitions]


@struct
class Member:
    member_id: String
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: String | None = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = field("1+", default=-1)


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: Array[Member]
    authorized_operations: Int32 = field(default=-2147483648)


@response(ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: Array[DescribedGroup]

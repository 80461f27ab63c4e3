"""Kafka API 77, ShareGroupDescribe."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, String, Uuid, field, request, response, struct


@request(ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
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
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    assignment: Assignment


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


@response(ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: Array[DescribedGroup]

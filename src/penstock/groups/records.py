"""Schemas of the records in `__consumer_offsets`; the layout is Kafka's, so that Kafka's tools can read them."""

from typing import Final

from penstock.wire.schema import (
    NIL_UUID,
    Array,
    Bytes,
    Int8,
    Int32,
    Int64,
    String,
    Uuid,
    field,
    record,
    struct,
)

OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2
CONSUMER_GROUP_METADATA: Final = 3
CONSUMER_GROUP_PARTITION_METADATA: Final = 4  # written by Kafka before 4.1; ignored
CONSUMER_GROUP_MEMBER_METADATA: Final = 5
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Final = 6
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = 7
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = 8
SHARE_GROUP_MEMBER_METADATA: Final = 10
SHARE_GROUP_METADATA: Final = 11
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: Final = 12
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = 13
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = 14
SHARE_GROUP_STATE_PARTITION_METADATA: Final = 15
CONSUMER_GROUP_REGULAR_EXPRESSION: Final = 16

OFFSET_COMMIT_VERSION: Final = 3
OFFSET_COMMIT_VERSION_WITH_ID: Final = 4
GROUP_METADATA_VERSION: Final = 3


@record(versions="0", flexible="none")
class OffsetCommitKey:
    group: String
    topic: String
    partition: Int32


@record(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: Int64
    leader_epoch: Int32 = field("3+", default=-1)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field("1", default=-1)
    topic_id: Uuid = field("4+", tag=0, default=NIL_UUID)


@record(versions="0", flexible="none")
class GroupKey:
    """Key of all records that concern a whole group."""

    group: String


@struct
class MemberMetadata:
    member_id: String
    group_instance_id: String | None = field("3+", default=None)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field("1+", default=-1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@record(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """Value of the record of a classic group: its metadata, members and assignments."""

    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field("2+", default=-1)
    members: Array[MemberMetadata]


@record(versions="0", flexible="none")
class MemberKey:
    """Key of all records that concern one member of a consumer, share or streams group."""

    group: String
    member_id: String


@record(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)


@struct
class ClassicProtocol:
    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32
    supported_protocols: Array[ClassicProtocol]


@record(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


@record(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@struct
class TargetTopicPartitions:
    topic_id: Uuid
    partitions: Array[Int32]


@record(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: Array[TargetTopicPartitions]


@struct
class CurrentTopicPartitions:
    topic_id: Uuid
    partitions: Array[Int32]
    assignment_epochs: Array[Int32] | None = field(tag=0, default=None)


@record(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[CurrentTopicPartitions]
    partitions_pending_revocation: Array[CurrentTopicPartitions]


@record(versions="0", flexible="none")
class RegularExpressionKey:
    group: String
    regular_expression: String


@record(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: Array[String]
    version: Int64
    timestamp: Int64


@record(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64


@record(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]


@record(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@record(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: Array[TargetTopicPartitions]


@record(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[TargetTopicPartitions]


@struct
class TopicPartitionsInfo:
    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@struct
class TopicInfo:
    topic_id: Uuid
    topic_name: String


@record(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The topics in which a share group has delivery state (which messages are in flight or acknowledged), and those
    where that state is being deleted."""

    initializing_topics: Array[TopicPartitionsInfo]
    initialized_topics: Array[TopicPartitionsInfo]
    deleting_topics: Array[TopicInfo]

"""Encodes and decodes Kafka's consumer protocol: the subscriptions and assignments of classic members.

A classic group treats both as opaque bytes. A consumer group decodes them for its classic members (KIP-848).
"""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.errors import MalformedRequest
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.members import by_topic
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.wire.state import kind_of

VERSION_MAX: Final = 3
"""Latest supported version of the consumer protocol; data of a later version is decoded as this version."""
_AFTER_VERSION: Final = 2


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Returns the decoded subscription of a member. Raises MalformedRequest."""
    return decode(ConsumerProtocolSubscription, _version_of(metadata), metadata, _AFTER_VERSION)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Returns the decoded assignment; without partitions if `assignment` is empty. Raises MalformedRequest."""
    if not assignment:
        return ConsumerProtocolAssignment(assigned_partitions=(), user_data=None)
    return decode(ConsumerProtocolAssignment, _version_of(assignment), assignment, _AFTER_VERSION)


def write_assignment(tps: Iterable[TopicIdPartition], image: ClusterImage, metadata: bytes) -> bytes:
    """Encodes `tps` as an assignment in the protocol version of the member's `metadata`; omits deleted topics."""
    version = _version_of(metadata)
    topics = [
        AssignedTopic(topic=image.shown[topic_id].name, partitions=numbers)
        for topic_id, numbers in by_topic(tps).items()
        if topic_id in image.shown
    ]
    assignment = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
    return version.to_bytes(_AFTER_VERSION, "big") + encode_bytes(assignment, version)


def partitions_in(topics: Iterable[AssignedTopic], image: ClusterImage) -> frozenset[TopicIdPartition]:
    """Converts topic names and partitions to partitions with topic ids; omits partitions that do not exist."""
    return frozenset(
        TopicIdPartition(topic.topic_id, number)
        for entry in topics
        if (topic := image.shown_by_name.get(entry.topic)) is not None
        for number in entry.partitions
        if number in topic.partitions
    )


def _version_of(written: bytes) -> int:
    version = kind_of(written)
    if version < 0:
        raise MalformedRequest(f"version {version} of the consumer protocol; expected 0 or higher")
    return min(version, VERSION_MAX)

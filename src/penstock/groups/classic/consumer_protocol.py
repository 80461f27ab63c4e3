"""What consumers of the classic protocol say about themselves and are told, read and written.

To a classic group these are bytes. A consumer group understands them for its classic members (KIP-848).
"""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.errors import MalformedRequest
from penstock.groups.consumer.members import TopicIdPartition, by_topic
from penstock.wire.codec import decode, encode_bytes
from penstock.wire.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.wire.state import kind_of

VERSION_MAX: Final = 3
"""Of what is written here; later ones begin with the same fields, and are read as this one."""
_AFTER_VERSION: Final = 2


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedRequest."""
    return decode(ConsumerProtocolSubscription, _version_of(metadata), metadata, _AFTER_VERSION)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Raises MalformedRequest. No bytes at all are no partitions: a member that has never synced."""
    if not assignment:
        return ConsumerProtocolAssignment(assigned_partitions=(), user_data=None)
    return decode(ConsumerProtocolAssignment, _version_of(assignment), assignment, _AFTER_VERSION)


def write_assignment(places: Iterable[TopicIdPartition], image: ClusterImage, metadata: bytes) -> bytes:
    """An assignment in the version of a member's metadata. Topics that are gone have no names, and are left out."""
    version = _version_of(metadata)
    topics = [
        AssignedTopic(topic=image.shown[topic_id].name, partitions=numbers)
        for topic_id, numbers in by_topic(places).items()
        if topic_id in image.shown
    ]
    assignment = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None)
    return version.to_bytes(_AFTER_VERSION, "big") + encode_bytes(assignment, version)


def places_in(topics: Iterable[AssignedTopic], image: ClusterImage) -> frozenset[TopicIdPartition]:
    """Partitions by the ids of their topics, as far as they are there."""
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
        raise MalformedRequest(f"a consumer's metadata is of version {version}")
    return min(version, VERSION_MAX)

"""Describes members of a consumer group in the ConsumerGroupDescribe response."""

from collections.abc import Iterable
from typing import Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.consumer.members import Member
from penstock.groups.modern.members import by_topic
from penstock.wire.messages.consumer_group_describe import Assignment, TopicPartitions
from penstock.wire.messages.consumer_group_describe import Member as DescribedMember

SPEAKS_CLASSIC: Final = 0
SPEAKS_CONSUMER: Final = 1


def describe_member(member: Member, target: Iterable[TopicIdPartition], image: ClusterImage) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        # Partitions that it revokes are its own until it has released them.
        assignment=_assignment({**member.assigned, **member.revoking}, image),
        target_assignment=_assignment(target, image),
        member_type=SPEAKS_CONSUMER if member.classic is None else SPEAKS_CLASSIC,
    )


def _assignment(tps: Iterable[TopicIdPartition], image: ClusterImage) -> Assignment:
    """Groups partitions by topic for the response; omits topics that do not exist."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=image.shown[topic_id].name, partitions=numbers)
            for topic_id, numbers in by_topic(tps).items()
            if topic_id in image.shown
        ]
    )

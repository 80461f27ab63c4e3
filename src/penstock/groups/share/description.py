"""Describes members of a share group in the ShareGroupDescribe response."""

from penstock.cluster.image import ClusterImage
from penstock.groups.modern.members import by_topic
from penstock.groups.share.members import ShareMember
from penstock.wire.messages.share_group_describe import Assignment, Member, TopicPartitions


def describe_member(member: ShareMember, image: ClusterImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=image.topics[topic_id].name, partitions=numbers)
                for topic_id, numbers in by_topic(member.assigned).items()
                if topic_id in image.topics
            ]
        ),
    )

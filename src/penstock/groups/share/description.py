"""Builds the ShareGroupDescribe response of a share group."""

from penstock.cluster.image import ClusterImage
from penstock.foundation.errors import PenstockError
from penstock.groups.consumer.members import by_topic
from penstock.groups.share.assignor import SIMPLE
from penstock.groups.share.members import ShareMember
from penstock.groups.share.state import ShareState
from penstock.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions


def describe_share_group(group_id: str, state: ShareState, image: ClusterImage) -> DescribedGroup:
    return DescribedGroup(
        error_code=0,
        group_id=group_id,
        group_state=state.name,
        group_epoch=state.epoch,
        assignment_epoch=state.target_epoch,
        assignor_name=SIMPLE,
        members=[_member(state.members[member_id], image) for member_id in sorted(state.members)],
    )


def refused_share_group(group_id: str, error: PenstockError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )


def _member(member: ShareMember, image: ClusterImage) -> Member:
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

"""Progress of share groups (KIP-932): start offset and lag of each partition."""

from dataclasses import dataclass

from penstock.client.cluster import KafkaClient
from penstock.client.errors import check
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOffset:
    """The progress of a share group in a partition."""

    start: int | None
    """Offset of the first unfinished message; None if the share group has not started to read the partition."""
    lag: int | None
    """Number of unfinished messages; None if the broker does not report it."""


async def share_group_offsets(client: KafkaClient, group: str, node_id: int) -> dict[TopicPartition, ShareOffset]:
    """Returns the progress of a share group in each of its partitions, from its coordinator `node_id`."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    response: DescribeShareGroupOffsetsResponse = await client.request(
        node_id, DescribeShareGroupOffsetsRequest(groups=[wanted])
    )
    (found,) = response.groups
    check(found.error_code, f"share group {group!r}", found.error_message)
    return {
        TopicPartition(topic.topic_name, entry.partition_index): ShareOffset(
            start=entry.start_offset if entry.start_offset >= 0 else None,
            lag=entry.lag if entry.lag >= 0 else None,
        )
        for topic in found.topics
        for entry in topic.partitions
    }

"""ListPartitionReassignments (KIP-455): lists ongoing reassignments with the replicas being added and removed."""

from collections.abc import Iterable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.permissions import in_cluster
from penstock.broker.registry import handles
from penstock.cluster.image import ClusterImage
from penstock.cluster.reassignment import find_reassignments
from penstock.foundation.acls import Operation
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicIdPartition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, in_cluster(Operation.DESCRIBE))
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, call: Call, broker: Broker
) -> ListPartitionReassignmentsResponse:
    image = broker.image
    wanted = None if request.topics is None else _partitions_in(request.topics, image)
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for found in find_reassignments(image, wanted):
        topics.setdefault(image.topics[found.tp.topic_id].name, []).append(
            OngoingPartitionReassignment(
                partition_index=found.tp.partition,
                replicas=found.replicas,
                adding_replicas=found.adding,
                removing_replicas=found.removing,
            )
        )
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[OngoingTopicReassignment(name=name, partitions=entries) for name, entries in topics.items()],
    )


def _partitions_in(topics: Iterable[ListPartitionReassignmentsTopics], image: ClusterImage) -> list[TopicIdPartition]:
    """Returns the requested partitions whose topics exist; other partitions cannot have a reassignment."""
    return [
        TopicIdPartition(image.by_name[topic.name].topic_id, number)
        for topic in topics
        if topic.name in image.by_name
        for number in topic.partition_indexes
    ]

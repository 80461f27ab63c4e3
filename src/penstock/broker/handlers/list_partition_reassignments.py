"""ListPartitionReassignments (KIP-455): which partitions are on their way, and where to."""

from collections.abc import Iterable

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.cluster.image import ClusterImage, Place
from penstock.cluster.reassignment import ongoing
from penstock.foundation.codes import ErrorCode
from penstock.wire.keys import ApiKey
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, call: Call, broker: Broker
) -> ListPartitionReassignmentsResponse:
    image = broker.image
    wanted = None if request.topics is None else _places(request.topics, image)
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for found in ongoing(image, wanted):
        topics.setdefault(image.topics[found.place.topic_id].name, []).append(
            OngoingPartitionReassignment(
                partition_index=found.place.number,
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


def _places(topics: Iterable[ListPartitionReassignmentsTopics], image: ClusterImage) -> list[Place]:
    """Those that are there: of what is not, nothing is under way."""
    return [
        Place(image.by_name[topic.name].topic_id, number)
        for topic in topics
        if topic.name in image.by_name
        for number in topic.partition_indexes
    ]

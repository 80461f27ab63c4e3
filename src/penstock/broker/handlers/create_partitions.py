"""CreatePartitions: adds partitions to a topic; partitions are never removed.

Partitions are added to an internal topic only while its coordinators are paused. Then `penstock cluster
repair-internal-topics` moves each key to the partition that the key hashes to with the new partition count.
"""

from collections import Counter

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.settings import PAUSED
from penstock.cluster.administration import grow_topic
from penstock.cluster.internal_topics import check_mutable
from penstock.cluster.queue_changes import check_growth
from penstock.cluster.topic_changes import plan_growth
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.wire.keys import ApiKey
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@handles(ApiKey.CREATE_PARTITIONS)
async def create_partitions(request: CreatePartitionsRequest, call: Call, broker: Broker) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in request.topics:
        code, message = 0, None
        try:
            if counts[topic.name] > 1:
                raise InvalidRequest(f"the request names topic {topic.name!r} more than once")
            call.check(Operation.ALTER, ResourceType.TOPIC, topic.name)
            await _grow(topic, request.validate_only, broker)
        except PenstockError as error:
            code, message = error.code, error.message
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message))
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


async def _grow(wanted: CreatePartitionsTopic, validate_only: bool, broker: Broker) -> None:
    assignments = None if wanted.assignments is None else [entry.broker_ids for entry in wanted.assignments]

    topic, defaults = broker.topic(wanted.name), broker.topic_defaults()
    is_paused = topic.name in broker.configs[PAUSED]
    if not is_paused:
        check_mutable(topic.name, topic.configs, "add partitions to")
    plan_growth(broker.image, topic, wanted.count, assignments, defaults)
    check_growth(broker.image, topic)
    if not validate_only:
        await grow_topic(
            broker.metadata, topic.topic_id, wanted.count, assignments, defaults, may_be_internal=is_paused
        )

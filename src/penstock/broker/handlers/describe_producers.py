"""DescribeProducers: returns the producer state of partitions (KIP-664)."""

from collections.abc import Awaitable
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.broker.sliced_answers import with_breaks
from penstock.foundation.acls import Operation, ResourceType
from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.foundation.steps import Steps
from penstock.log.producers import Producer
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

PRODUCERS_MAX: Final = 100_000
"""Maximum number of producers in one response: as many as one partition may have."""


@handles(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(
    request: DescribeProducersRequest, call: Call, broker: Broker
) -> Awaitable[DescribeProducersResponse]:
    return broker.slices.run(_describe(request, call, broker))


def _describe(request: DescribeProducersRequest, call: Call, broker: Broker) -> Steps[DescribeProducersResponse]:
    topics = []
    remaining = PRODUCERS_MAX
    for topic in request.topics:
        results = []
        for number in topic.partition_indexes:
            yield
            try:
                call.check(Operation.READ, ResourceType.TOPIC, topic.name)
                producers = broker.partition(topic.name, b"", number).log.producers.by_id
                if len(producers) > remaining:
                    raise InvalidRequest(
                        f"a response has at most {PRODUCERS_MAX} producers; request fewer partitions at a time"
                    )
                remaining -= len(producers)
            except PenstockError as error:
                results.append(
                    PartitionResponse(
                        partition_index=number,
                        error_code=error.code,
                        error_message=error.message,
                        active_producers=(),
                    )
                )
                continue
            states = []
            for found in with_breaks(list(producers.items())):
                if found is None:
                    yield
                else:
                    states.append(_state(*found))
            results.append(PartitionResponse(partition_index=number, error_code=0, active_producers=states))
        topics.append(TopicResponse(name=topic.name, partitions=results))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _state(producer_id: int, producer: Producer) -> ProducerState:
    newest = producer.batches[-1] if producer.batches else None
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=newest.last_sequence if newest else -1,
        last_timestamp=newest.timestamp_ms if newest else -1,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.first_offset,
    )

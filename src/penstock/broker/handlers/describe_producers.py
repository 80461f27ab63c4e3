"""DescribeProducers: who writes to a partition, as the partition remembers it (KIP-664)."""

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.registry import handles
from penstock.foundation.errors import PenstockError
from penstock.log.producers import Producer
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@handles(ApiKey.DESCRIBE_PRODUCERS)
def describe_producers(request: DescribeProducersRequest, call: Call, broker: Broker) -> DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        results = []
        for number in topic.partition_indexes:
            try:
                producers = broker.partition(topic.name, b"", number).log.producers.by_id
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
            states = [_state(producer_id, producer) for producer_id, producer in producers.items()]
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

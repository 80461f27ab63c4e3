"""Builds the queue service of a broker."""

from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.produce.validation import validate_batch
from penstock.broker.queues.service import QueueService


def add_queues(broker: Broker) -> QueueService:
    """Creates the QueueService and attaches it to the broker."""
    service = broker.queue_service = QueueService(
        node_id=broker.node_id,
        metadata=broker.metadata,
        partitions=broker.partitions,
        producer_ids=broker.producer_ids,
        defaults=broker.topic_defaults,
        clock=broker.clock,
        timer=broker.timer,
        threads=broker.threads,
        slices=broker.slices,
        ask=broker.ask,
        validate=partial(validate_batch, broker=broker),
    )
    broker.queue_partitions = service.queue_partitions
    return service

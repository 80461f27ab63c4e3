"""Prometheus metrics of queues on the partitions that this broker leads: message counts and oldest age."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from penstock.broker.queues.counts import oldest_ms, sum_counts
from penstock.broker.queues.service import QueueService
from penstock.foundation.clock import Clock

QUEUES_MAX: Final = 1000
"""Maximum number of queues that have their own metrics: bounds the size of a scrape."""
QUEUE_PARTITIONS_PER_SLICE: Final = 20
"""Number of queue partitions scanned before the event loop runs other work; low, because a scan reads their logs."""


class QueueMetrics:
    """Collects metrics of the queues at scrape time."""

    def __init__(self, service: QueueService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    def collect(self) -> Iterator[Metric | None]:
        messages = GaugeMetricFamily(
            "penstock_queue_messages",
            "Messages of a queue on partitions led here, by state",
            labels=["queue", "state"],
        )
        ages = GaugeMetricFamily(
            "penstock_queue_oldest_seconds",
            "Age of the oldest message of a queue that is not deleted, on partitions led here",
            labels=["queue"],
        )
        queues = self._service.queues()
        scanned = 0
        for name in sorted(queues)[:QUEUES_MAX]:
            partitions = self._service.queue_partitions.of_topic(queues[name].topic_id)
            scanned += len(partitions)
            if scanned >= QUEUE_PARTITIONS_PER_SLICE:
                scanned = 0
                yield None
            if not partitions:
                continue
            counts = sum_counts(self._service.counter.estimate(partition, name) for partition in partitions)
            for state, number in counts._asdict().items():
                messages.add_metric([name, state], number)
            sent_ms = [time for partition in partitions if (time := oldest_ms(partition, name)) is not None]
            ages.add_metric([name], max(0, self._clock.now_ms() - min(sent_ms)) / 1000 if sent_ms else 0)
        yield messages
        yield ages
        yield GaugeMetricFamily("penstock_queues", "Queues that this broker knows", value=len(queues))
        yield GaugeMetricFamily(
            "penstock_queue_receivers", "Receives that wait at this broker", value=len(self._service.receivers)
        )

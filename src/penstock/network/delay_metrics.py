"""Prometheus metrics of delayed messages on the partitions that this broker leads."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.broker.delays.partitions import DelayPartitions
from penstock.broker.delays.stats import BOUNDS_MS
from penstock.network.exposition import ITEMS_PER_SLICE

TOPICS_MAX: Final = 1000
"""Maximum number of topics that have their own metrics: bounds the size of a scrape."""


class DelayMetrics:
    """Collects the metrics of delayed messages at scrape time."""

    def __init__(self, delay_partitions: DelayPartitions) -> None:
        self._delay_partitions = delay_partitions

    def collect(self) -> Iterator[Metric | None]:
        counts: dict[str, int] = {}
        for scanned, found in enumerate(self._delay_partitions, 1):
            if scanned % ITEMS_PER_SLICE == 0:
                yield None
            name = found.partition.name.topic
            counts[name] = counts.get(name, 0) + found.machine.pending_count
        pending = GaugeMetricFamily(
            "penstock_delayed_pending", "Delayed messages not delivered yet, on partitions led here", labels=["topic"]
        )
        for name in sorted(counts)[:TOPICS_MAX]:
            pending.add_metric([name], counts[name])
        yield pending
        stats = self._delay_partitions.stats
        yield CounterMetricFamily("penstock_delayed_delivered", "Delayed messages delivered here", value=stats.count)
        yield CounterMetricFamily(
            "penstock_delayed_cancelled", "Delayed messages cancelled here", value=stats.cancelled
        )
        sums, total = [], 0
        for bound_ms, count in zip(BOUNDS_MS, stats.buckets, strict=False):
            total += count
            sums.append((str(bound_ms / 1000), total))
        late = HistogramMetricFamily("penstock_delayed_lateness_seconds", "How late delayed messages were committed")
        late.add_metric([], [*sums, ("+Inf", stats.count)], stats.late_ms / 1000)
        yield late

"""How delayed messages are on the partitions that this broker leads."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.broker.delays.partitions import DelayPartitions
from penstock.broker.delays.stats import BOUNDS_MS
from penstock.network.exposition import PACE

TOPICS_MAX: Final = 1000
"""Topics that are told of one by one: a scrape stays small whatever there is."""


class DelayMetrics:
    """Looks when it is asked."""

    def __init__(self, delay_partitions: DelayPartitions) -> None:
        self._delay_partitions = delay_partitions

    def collect(self) -> Iterator[Metric | None]:
        counts: dict[str, int] = {}
        for looked, found in enumerate(self._delay_partitions, 1):
            if looked % PACE == 0:
                yield None
            name = found.partition.name.topic
            counts[name] = counts.get(name, 0) + found.machine.pending_count
        pending = GaugeMetricFamily(
            "penstock_delayed_pending", "Messages that wait for their time, on partitions led here", labels=["topic"]
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

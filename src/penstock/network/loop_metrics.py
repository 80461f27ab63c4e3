"""Prometheus metrics of event-loop stalls."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from penstock.foundation.loop_monitor import Histogram, LoopMonitor


class LoopMetrics:
    """Collects the histograms of the event-loop stall monitor."""

    def __init__(self, monitor: LoopMonitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        yield _family(
            "penstock_event_loop_stall_seconds",
            "Time that a ready callback waited for the event loop, sampled",
            self._monitor.stalls,
        )
        yield _family(
            "penstock_event_loop_stall_cpu_seconds",
            "CPU time that the event loop's thread used while that callback waited",
            self._monitor.stall_cpu,
        )


def _family(name: str, doc: str, histogram: Histogram) -> Metric:
    total = 0
    rows = []
    for edge, count in zip((*map(str, histogram.buckets_s), "+Inf"), histogram.counts, strict=True):
        total += count
        rows.append((edge, total))
    family = HistogramMetricFamily(name, doc)
    family.add_metric([], rows, histogram.sum_s)
    return family

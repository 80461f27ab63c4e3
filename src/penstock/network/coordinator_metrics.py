"""Prometheus metrics of coordinators: unloaded partitions, skipped records, wrong internal-topic settings."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.cluster.image import ClusterImage
from penstock.cluster.internal_topics import find_faults
from penstock.foundation.ids import INTERNAL_TOPICS
from penstock.replication.runtime_set import RuntimeSet

STATES: Final = ("loading", "failed", "offline", "paused")


class CoordinatorMetrics:
    """Collects the metrics of this broker's coordinators at scrape time."""

    def __init__(self, sets: Mapping[str, RuntimeSet[Any]], image: Callable[[], ClusterImage]) -> None:
        self._sets = sets
        self._image = image

    def collect(self) -> Iterator[Metric]:
        unloaded = GaugeMetricFamily(
            "penstock_coordinator_unloaded_partitions",
            "Partitions led here whose coordinator is not available, by state",
            labels=["coordinator", "state"],
        )
        skipped = CounterMetricFamily(
            "penstock_coordinator_skipped_records",
            "Unreadable records skipped while loading coordinators",
            labels=["coordinator"],
        )
        for name, runtimes in self._sets.items():
            states = runtimes.unloaded
            for state in STATES:
                unloaded.add_metric([name, state], states[state])
            if runtimes.skips_unreadable:
                skipped.add_metric([name], runtimes.skipped_count)
        yield from (unloaded, skipped)
        faults = GaugeMetricFamily(
            "penstock_internal_topic_faults",
            "Wrong settings of an internal topic",
            labels=["topic"],
        )
        for name in sorted(INTERNAL_TOPICS & self._image().by_name.keys()):
            faults.add_metric([name], len(find_faults(self._image().by_name[name].configs)))
        yield faults

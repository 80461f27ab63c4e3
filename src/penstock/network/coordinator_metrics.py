"""Coordinators that are not loaded, records that they skipped, and internal topics that are wrong, for Prometheus."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.cluster.image import ClusterImage
from penstock.cluster.internal_topics import find_faults
from penstock.foundation.ids import INTERNAL_TOPICS
from penstock.replication.runtime_set import RuntimeSet

STATES: Final = ("loading", "failed", "offline", "paused")


class CoordinatorMetrics:
    """Looks at the state machines of each kind when it is asked."""

    def __init__(self, sets: Mapping[str, RuntimeSet[Any]], image: Callable[[], ClusterImage]) -> None:
        self._sets = sets
        self._image = image

    def collect(self) -> Iterator[Metric]:
        unloaded = GaugeMetricFamily(
            "penstock_coordinator_unloaded_partitions",
            "Partitions led here whose coordinator does not decide, by what it waits for",
            labels=["coordinator", "state"],
        )
        skipped = CounterMetricFamily(
            "penstock_coordinator_skipped_records",
            "Records that could not be read and were skipped while coordinators were loaded",
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
            "Settings of an internal topic that are wrong",
            labels=["topic"],
        )
        for name in sorted(INTERNAL_TOPICS & self._image().by_name.keys()):
            faults.add_metric([name], len(find_faults(self._image().by_name[name].configs)))
        yield faults

"""Prometheus metrics of replication on this broker: leaders, ISR, follower lag, throttled bytes."""

from collections.abc import Callable, Iterator
from heapq import nlargest
from operator import attrgetter
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.cluster.image import ClusterImage, PartitionState
from penstock.network.exposition import ITEMS_PER_SLICE
from penstock.replication.isr_maintenance import IsrMaintenance
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.throttle import Throttle

LAGS_MAX: Final = 100
"""Maximum number of followers whose lag is exported, those with the largest lags: bounds the size of a scrape."""


class Lag(NamedTuple):
    """A follower of a partition, and how many messages it is behind the leader."""

    messages: int
    partition: Partition
    follower: int


_MESSAGES: Final = attrgetter("messages")


class ClusterMetrics:
    """Collects metrics at scrape time from the metadata image and the partitions that this broker leads."""

    def __init__(
        self,
        *,
        node_id: int,
        image: Callable[[], ClusterImage],
        partitions: Partitions,
        isr_maintenance: IsrMaintenance,
        sent: Throttle,
        fetched: Throttle,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._isr_maintenance = isr_maintenance
        self._sent = sent
        self._fetched = fetched

    def collect(self) -> Iterator[Metric | None]:
        image = self._image()
        is_controller = image.controller_id == self._node_id
        yield GaugeMetricFamily(
            "penstock_is_controller", "Whether this broker is the controller", value=is_controller
        )
        yield GaugeMetricFamily(
            "penstock_brokers", "Registered brokers that this broker knows", value=len(image.brokers)
        )
        leaderless = 0
        if is_controller:
            for scanned, (_, state) in enumerate(image.find_partitions(), 1):
                leaderless += state.leader not in image.brokers
                if scanned % ITEMS_PER_SLICE == 0:
                    yield None
        yield GaugeMetricFamily(
            "penstock_leaderless_partitions", "Partitions without a leader, set by the controller", value=leaderless
        )
        yield from self._collect_led(image)
        yield from self._collect_isrs()
        yield from self._collect_lags()
        throttled = CounterMetricFamily(
            "penstock_throttled_bytes", "Bytes replicated under a throttle", labels=["side"]
        )
        throttled.add_metric(["leader"], self._sent.taken)
        throttled.add_metric(["follower"], self._fetched.taken)
        yield throttled

    def _collect_led(self, image: ClusterImage) -> Iterator[Metric | None]:
        led = under_replicated = under_min_isr = reassigned = 0
        for scanned, partition in enumerate(self._led(), 1):
            state = image.state(partition.tp)
            if state is not None:
                led += 1
                under_replicated += state.is_under_replicated
                under_min_isr += _is_under_min_isr(partition, state)
                reassigned += state.is_reassigned
            if scanned % ITEMS_PER_SLICE == 0:
                yield None
        replicas = sum(map(len, self._partitions.replicas.values()))
        for name, text, value in (
            ("penstock_leaders", "Partitions that this broker leads", led),
            ("penstock_replicas", "Replicas on this broker", replicas),
            (
                "penstock_under_replicated_partitions",
                "Partitions led here with replicas that are not in sync",
                under_replicated,
            ),
            (
                "penstock_under_min_isr_partitions",
                "Partitions led here with fewer in-sync replicas than min.insync.replicas",
                under_min_isr,
            ),
            ("penstock_reassigning_partitions", "Partitions led here that are being reassigned", reassigned),
        ):
            yield GaugeMetricFamily(name, text, value=value)

    def _collect_isrs(self) -> Iterator[Metric]:
        isr = self._isr_maintenance
        yield CounterMetricFamily("penstock_isr_shrinks", "ISR shrinks of partitions led here", value=isr.shrinks)
        yield CounterMetricFamily("penstock_isr_expands", "ISR expansions of partitions led here", value=isr.grows)

    def _collect_lags(self) -> Iterator[Metric | None]:
        lags: list[Lag] = []
        for scanned, partition in enumerate(self._led(), 1):
            lags += _lags_of(partition)
            if scanned % ITEMS_PER_SLICE == 0:
                lags = nlargest(LAGS_MAX, lags, key=_MESSAGES)
                yield None
        lags = nlargest(LAGS_MAX, lags, key=_MESSAGES)
        yield GaugeMetricFamily(
            "penstock_follower_lag_max",
            "Largest lag of any follower behind this broker, in messages",
            value=lags[0].messages if lags else 0,
        )
        each = GaugeMetricFamily(
            "penstock_follower_lag",
            f"Messages that a follower is behind its leader, for the {LAGS_MAX} largest lags",
            labels=["topic", "partition", "follower"],
        )
        for lag in lags:
            name = lag.partition.name
            each.add_metric([name.topic, str(name.partition), str(lag.follower)], lag.messages)
        yield each

    def _led(self) -> list[Partition]:
        return [partition for table in self._partitions.by_id.values() for partition in table.values()]


def _lags_of(partition: Partition) -> Iterator[Lag]:
    """Yields the lag of each follower that is behind the leader."""
    lead = partition.leadership
    if lead is None or not partition.is_online:
        return
    log, start = lead.logs[0], partition.log.start_offset
    for node, progress in log.followers.items():
        behind = log.end - max(progress.end, start)
        if behind > 0:
            yield Lag(behind, partition, node)


def _is_under_min_isr(partition: Partition, state: PartitionState) -> bool:
    wanted = min(partition.log.settings.min_insync_replicas, len(state.replicas)) if partition.is_online else 0
    return len(state.isr) < wanted

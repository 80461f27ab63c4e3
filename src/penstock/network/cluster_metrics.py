"""How this broker's part of the cluster is, in numbers for Prometheus; the sum over all brokers tells of all."""

from collections.abc import Callable, Iterator
from heapq import nlargest
from operator import attrgetter
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.cluster.image import ClusterImage, PartitionState
from penstock.network.exposition import PACE
from penstock.replication.isr_maintenance import IsrKeeper
from penstock.replication.partition import OWN, Partition
from penstock.replication.partitions import Partitions
from penstock.replication.throttle import Throttle

LAGS_MAX: Final = 100
"""Followers whose lag is told one by one, those furthest behind first: a scrape stays small whatever there is."""


class Lag(NamedTuple):
    """How many messages a follower is behind a leader."""

    messages: int
    partition: Partition
    follower: int


_MESSAGES: Final = attrgetter("messages")


class ClusterMetrics:
    """Looks at the image and at what this broker leads, when it is asked."""

    def __init__(
        self,
        *,
        node_id: int,
        image: Callable[[], ClusterImage],
        partitions: Partitions,
        isr_keeper: IsrKeeper,
        sent: Throttle,
        fetched: Throttle,
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._isr_keeper = isr_keeper
        self._sent = sent
        self._fetched = fetched

    def collect(self) -> Iterator[Metric | None]:
        image = self._image()
        is_controller = image.controller_id == self._node_id
        yield GaugeMetricFamily(
            "penstock_is_controller", "Whether this broker is the controller", value=is_controller
        )
        yield GaugeMetricFamily(
            "penstock_brokers", "Brokers that this one knows to be there", value=len(image.brokers)
        )
        leaderless = 0
        if is_controller:
            for looked, (_, state) in enumerate(image.placed(), 1):
                leaderless += state.leader not in image.brokers
                if looked % PACE == 0:
                    yield None
        yield GaugeMetricFamily(
            "penstock_leaderless_partitions", "Partitions that nobody leads, told by the controller", value=leaderless
        )
        yield from self._collect_led(image)
        yield from self._collect_isrs()
        yield from self._collect_lags()
        throttled = CounterMetricFamily(
            "penstock_throttled_bytes", "Bytes that replicas which lag got under a throttle", labels=["side"]
        )
        throttled.add_metric(["leader"], self._sent.taken)
        throttled.add_metric(["follower"], self._fetched.taken)
        yield throttled

    def _collect_led(self, image: ClusterImage) -> Iterator[Metric | None]:
        led = under_replicated = under_min_isr = reassigned = 0
        for looked, partition in enumerate(self._led(), 1):
            state = image.state(partition.place)
            if state is not None:
                led += 1
                under_replicated += state.is_under_replicated
                under_min_isr += _is_under_min_isr(partition, state)
                reassigned += state.is_reassigned
            if looked % PACE == 0:
                yield None
        replicas = sum(map(len, self._partitions.replicas.values()))
        for name, text, value in (
            ("penstock_leaders", "Partitions that this broker leads", led),
            ("penstock_replicas", "Replicas that this broker has", replicas),
            (
                "penstock_under_replicated_partitions",
                "Partitions led here that not all of their replicas are in sync with",
                under_replicated,
            ),
            (
                "penstock_under_min_isr_partitions",
                "Partitions led here that have fewer replicas in sync than min.insync.replicas",
                under_min_isr,
            ),
            ("penstock_reassigning_partitions", "Partitions led here whose replicas are being moved", reassigned),
        ):
            yield GaugeMetricFamily(name, text, value=value)

    def _collect_isrs(self) -> Iterator[Metric]:
        keeper = self._isr_keeper
        yield CounterMetricFamily(
            "penstock_isr_shrinks", "Times that a replica fell out of sync", value=keeper.shrinks
        )
        yield CounterMetricFamily("penstock_isr_expands", "Times that a replica came into sync", value=keeper.grows)

    def _collect_lags(self) -> Iterator[Metric | None]:
        lags: list[Lag] = []
        for looked, partition in enumerate(self._led(), 1):
            lags += _lags_of(partition)
            if looked % PACE == 0:
                lags = nlargest(LAGS_MAX, lags, key=_MESSAGES)
                yield None
        lags = nlargest(LAGS_MAX, lags, key=_MESSAGES)
        yield GaugeMetricFamily(
            "penstock_follower_lag_max",
            "Messages that the last of the followers is behind what this broker leads",
            value=lags[0].messages if lags else 0,
        )
        each = GaugeMetricFamily(
            "penstock_follower_lag",
            f"Messages that a follower is behind, of the {LAGS_MAX} that are furthest",
            labels=["topic", "partition", "follower"],
        )
        for lag in lags:
            name = lag.partition.name
            each.add_metric([name.topic, str(name.partition), str(lag.follower)], lag.messages)
        yield each

    def _led(self) -> list[Partition]:
        return [partition for table in self._partitions.by_id.values() for partition in table.values()]


def _lags_of(partition: Partition) -> Iterator[Lag]:
    """Of followers that have something to catch up with."""
    lead = partition.leadership
    if lead is None or not partition.is_online:
        return
    track, start = lead.tracks[OWN], partition.log.start_offset
    for node, progress in track.followers.items():
        behind = track.end - max(progress.end, start)
        if behind > 0:
            yield Lag(behind, partition, node)


def _is_under_min_isr(partition: Partition, state: PartitionState) -> bool:
    wanted = min(partition.log.settings.min_insync_replicas, len(state.replicas)) if partition.is_online else 0
    return len(state.isr) < wanted

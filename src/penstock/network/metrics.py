"""Prometheus metrics of a broker: connections, requests per API, log sizes; includes all other collectors."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.samples import Sample

from penstock.log.log import Log
from penstock.network.cluster_metrics import ClusterMetrics
from penstock.network.exposition import ITEMS_PER_SLICE, Collector, LargeGauge, text_pieces
from penstock.replication.partitions import Partitions
from penstock.wire.keys import ApiKey

BUCKETS: Final = 27
"""Number of latency buckets. Their upper bounds are 1, 2, 4, … microseconds, up to about a minute."""


class ApiMetrics:
    __slots__ = ("buckets", "bytes_in", "bytes_out", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.buckets = [0] * (BUCKETS + 1)


class Metrics:
    """Counts connections and requests of the Kafka listener, and collects all metrics of the broker."""

    def __init__(self, partitions: Partitions, cluster: ClusterMetrics) -> None:
        self._partitions = partitions
        self._cluster = cluster
        self.collectors: list[Collector] = []
        """Further collectors, whose metrics `collect` includes."""
        self._apis: defaultdict[int, ApiMetrics] = defaultdict(ApiMetrics)
        self._connections: defaultdict[str, int] = defaultdict(int)
        """By listener."""
        self._connected = 0
        self._refused: defaultdict[str, int] = defaultdict(int)

    # -- the listener's probe

    def connected(self, listener: str) -> None:
        self._connections[listener] += 1
        self._connected += 1

    def disconnected(self, listener: str) -> None:
        self._connections[listener] -= 1

    def refused(self, kind: str) -> None:
        self._refused[kind] += 1

    def requests(self, api_key: int, count: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """Counts `count` requests of one API, each with a latency of `seconds`; bytes are totals."""
        api = self._apis[api_key]
        api.count += count
        api.seconds += seconds * count
        api.bytes_in += bytes_in
        api.bytes_out += bytes_out
        api.buckets[min(int(seconds * 1e6).bit_length(), BUCKETS)] += count

    # -- called by a scrape

    def text(self) -> Iterator[bytes]:
        """Yields the text of all metrics in pieces, each about a millisecond of work."""
        return text_pieces(self.collect())

    def collect(self) -> Iterator[Metric | LargeGauge | None]:
        total = sum(self._connections.values())
        yield GaugeMetricFamily("penstock_connections", "Kafka connections that are open", value=total)
        of_listeners = GaugeMetricFamily(
            "penstock_listener_connections", "Kafka connections that are open, by listener", labels=["listener"]
        )
        for listener, number in self._connections.items():
            of_listeners.add_metric([listener], number)
        yield of_listeners
        yield CounterMetricFamily(
            "penstock_connections_accepted", "Kafka connections accepted", value=self._connected
        )
        refused = CounterMetricFamily(
            "penstock_refused", "Connections closed by the broker, by reason", labels=["reason"]
        )
        for reason, number in self._refused.items():
            refused.add_metric([reason], number)
        yield refused
        yield from self._collect_apis()
        yield from self._collect_logs()
        yield from self._cluster.collect()
        for collector in self.collectors:
            yield from collector.collect()

    def _collect_apis(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "penstock_request_seconds", "Time from a request's last byte to its response", labels=["api"]
        )
        bytes_in = CounterMetricFamily("penstock_request_bytes", "Bytes of requests", labels=["api"])
        bytes_out = CounterMetricFamily("penstock_response_bytes", "Bytes of responses", labels=["api"])
        for key, api in self._apis.items():
            name = ApiKey(key).name.lower()
            bytes_in.add_metric([name], api.bytes_in)
            bytes_out.add_metric([name], api.bytes_out)
            total, rows = 0, []
            for exponent, number in enumerate(api.buckets):
                total += number
                rows.append((f"{2**exponent / 1e6:g}" if exponent < BUCKETS else "+Inf", total))
            latency.add_metric([name], rows, api.seconds)
        yield from (latency, bytes_in, bytes_out)

    def _collect_logs(self) -> Iterator[Metric | LargeGauge | None]:
        yield self._by_topic("penstock_log_bytes", "Bytes of a topic's logs", lambda log: log.size_bytes)
        yield self._by_topic("penstock_log_end_offset", "Sum of a topic's end offsets", lambda log: log.end_offset)
        yield self._by_topic("penstock_log_segments", "Segments of a topic's logs", lambda log: len(log.segments))
        offline = 0
        for scanned, table in enumerate(list(self._partitions.by_name.values()), 1):
            offline += sum(not partition.is_online for partition in table.values())
            if scanned % ITEMS_PER_SLICE == 0:
                yield None
        yield GaugeMetricFamily("penstock_offline_partitions", "Partitions that cannot be served", value=offline)

    def _by_topic(self, name: str, documentation: str, measure: Callable[[Log], int]) -> LargeGauge:
        def samples() -> Iterator[Sample]:
            for topic in list(self._partitions.by_name):
                table = self._partitions.by_name.get(topic, {})  # it may have just been deleted
                sizes = [measure(partition.log) for partition in table.values() if partition.is_online]
                yield Sample(name, {"topic": topic}, sum(sizes))

        return LargeGauge(name, documentation, samples())

"""Counters that cost next to nothing to keep, and their text for Prometheus."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from copy import copy
from typing import Any, Final, Protocol, cast

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.network.cluster_metrics import ClusterMetrics
from penstock.replication.partitions import Partitions
from penstock.wire.keys import ApiKey

BUCKETS: Final = 27
"""Latencies are counted by powers of two of a microsecond, up to about a minute."""


PAUSE: Final = None
"""What a collector yields between metrics when it has looked at many things: the event loop may do others now."""
SLICE: Final = 1000
"""Partitions that are looked at, or lines that are written, between two pauses."""


class Collector(Protocol):
    def collect(self) -> Iterator[Metric | None]: ...


class _Family:
    """A registry of one metric, or of some of its samples."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


class ApiMetrics:
    __slots__ = ("buckets", "bytes_in", "bytes_out", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.bytes_in = 0
        self.bytes_out = 0
        self.buckets = [0] * (BUCKETS + 1)


class Metrics:
    """What the broker counts. It is the listener's probe, and a collector for Prometheus."""

    def __init__(self, partitions: Partitions, cluster: ClusterMetrics) -> None:
        self._partitions = partitions
        self._cluster = cluster
        self.more: list[Collector] = []
        """Whoever else has something to tell."""
        self._apis: defaultdict[int, ApiMetrics] = defaultdict(ApiMetrics)
        self._connections = 0
        self._connected = 0
        self._refused: defaultdict[str, int] = defaultdict(int)

    # -- the listener's probe

    def connected(self) -> None:
        self._connections += 1
        self._connected += 1

    def disconnected(self) -> None:
        self._connections -= 1

    def refused(self, kind: str) -> None:
        self._refused[kind] += 1

    def requests(self, api_key: int, count: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """`count` requests were answered, each after `seconds`."""
        api = self._apis[api_key]
        api.count += count
        api.seconds += seconds * count
        api.bytes_in += bytes_in
        api.bytes_out += bytes_out
        api.buckets[min(int(seconds * 1e6).bit_length(), BUCKETS)] += count

    # -- Prometheus's side

    async def text(self) -> bytes:
        """All metrics. A broker may have ten thousand partitions or topics: they are told in slices."""
        parts: list[bytes] = []
        for metric in self.collect():
            if metric is not None:
                for piece in _lines(metric):
                    parts.append(piece)
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        return b"".join(parts)

    def collect(self) -> Iterator[Metric | None]:
        yield GaugeMetricFamily("penstock_connections", "Kafka connections that are open", value=self._connections)
        yield CounterMetricFamily(
            "penstock_connections_accepted", "Kafka connections ever accepted", value=self._connected
        )
        refused = CounterMetricFamily(
            "penstock_refused", "Connections that were closed, by reason", labels=["reason"]
        )
        for reason, number in self._refused.items():
            refused.add_metric([reason], number)
        yield refused
        yield from self._collect_apis()
        yield from self._collect_logs()
        yield from self._cluster.collect()
        for other in self.more:
            yield from other.collect()

    def _collect_apis(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "penstock_request_seconds", "From a request's last byte to its answer", labels=["api"]
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

    def _collect_logs(self) -> Iterator[Metric | None]:
        sizes = GaugeMetricFamily("penstock_log_bytes", "Bytes of a topic's logs", labels=["topic"])
        ends = GaugeMetricFamily("penstock_log_end_offset", "Sum of a topic's end offsets", labels=["topic"])
        segments = GaugeMetricFamily("penstock_log_segments", "Segments of a topic's logs", labels=["topic"])
        offline = seen = 0
        for topic, table in list(self._partitions.by_name.items()):
            seen += 1 + len(table)
            if seen >= SLICE:
                seen = 0
                yield PAUSE
            logs = [partition.log for partition in table.values() if partition.is_online]
            offline += len(table) - len(logs)
            sizes.add_metric([topic], sum(log.size_bytes for log in logs))
            ends.add_metric([topic], sum(log.end_offset for log in logs))
            segments.add_metric([topic], sum(len(log.segments) for log in logs))
        yield from (sizes, ends, segments)
        yield GaugeMetricFamily("penstock_offline_partitions", "Partitions that cannot be served", value=offline)


def _lines(metric: Metric) -> Iterator[bytes]:
    """The text of a metric, a slice of its samples at a time."""
    if len(metric.samples) <= SLICE:
        yield _text(metric)
        return
    for first in range(0, len(metric.samples), SLICE):
        some = copy(metric)
        some.samples = metric.samples[first : first + SLICE]
        text = _text(some)
        yield text if not first else b"".join(line for line in text.splitlines(True) if not line.startswith(b"#"))


def _text(metric: Metric) -> bytes:
    return generate_latest(cast(Any, _Family(metric)))

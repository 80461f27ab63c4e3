"""Prometheus metrics of client telemetry (KIP-714): pushed values, clients and push results."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from penstock.broker.client_telemetry import ClientTelemetry
from penstock.foundation.ids import uuid_text
from penstock.network.exposition import LargeGauge
from penstock.telemetry.client_metrics import PREFIX, Family, shown_labels

_INFO: Final = PREFIX + "info"


class TelemetryMetrics:
    def __init__(self, telemetry: ClientTelemetry) -> None:
        self._telemetry = telemetry

    def collect(self) -> Iterator[Metric | LargeGauge | None]:
        telemetry = self._telemetry
        pushes = CounterMetricFamily(
            "penstock_telemetry_pushes", "Metric pushes of clients, by result", labels=["result"]
        )
        for result, number in telemetry.pushes.items():
            pushes.add_metric([result], number)
        yield pushes
        yield GaugeMetricFamily(
            "penstock_telemetry_series", "Values that clients have pushed", value=telemetry.collected.series
        )
        yield CounterMetricFamily(
            "penstock_telemetry_dropped",
            "Pushed values that are not exported: over a limit, or of an unsupported type",
            value=telemetry.collected.dropped + telemetry.skipped,
        )
        yield LargeGauge(_INFO, "Clients that push metrics", self._clients())
        for name in list(telemetry.collected.families):
            yield None
            if (family := telemetry.collected.families.get(name)) is not None:
                kind = "counter" if family.is_counter else "gauge"
                shown = name.removesuffix("_total") if family.is_counter else name
                yield LargeGauge(shown, "Pushed by clients (KIP-714)", self._samples(family), kind)

    def _clients(self) -> Iterator[Sample]:
        for client, resource in self._telemetry.instances():
            resource_labels = dict(shown_labels(tuple(resource.items())))
            known = {name: (value or "")[:255] for name, value in client._asdict().items()}
            yield Sample(_INFO, {**resource_labels, **known}, 1)

    def _samples(self, family: Family) -> Iterator[Sample]:
        for client, labels, value in family.samples():
            own = {"client_instance_id": uuid_text(client), "client_id": self._telemetry.client_id(client)}
            yield Sample(family.name, {**dict(labels), **own}, value)

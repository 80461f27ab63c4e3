"""Prometheus metrics of the schema registry: schemas, their memory, and checks of new ones."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.broker.schemas.service import RegistryService
from penstock.schemas.registry.machine import RegistryMachine


class RegistryMetrics:
    """Collects the metrics of the schema registry; the numbers of schemas only on the broker that leads it."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric | None]:
        checks = CounterMetricFamily("penstock_registry_checks", "Schemas parsed or compared by this broker")
        checks.add_metric([], self._service.checker.jobs)
        yield checks
        for runtime in self._service.runtimes.loaded.values():
            assert isinstance(runtime.machine, RegistryMachine)
            state = runtime.machine.state
            yield GaugeMetricFamily(
                "penstock_registry_subjects", "Subjects of the registry", value=len(state.visible)
            )
            yield GaugeMetricFamily(
                "penstock_registry_versions", "Schema versions of the registry", value=state.count
            )
            yield GaugeMetricFamily(
                "penstock_registry_bytes", "About the memory that all schema texts take", value=state.size_bytes
            )

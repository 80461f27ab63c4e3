"""The Prometheus metric of the audit log."""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, Metric


class Audited(Protocol):
    """What has an audit log, or has none."""

    @property
    def audit_events_lost(self) -> int: ...


class AuditMetrics:
    """Collects the number of events that are missing in the audit log."""

    def __init__(self, audited: Audited) -> None:
        self._audited = audited

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "penstock_audit_events_lost",
            "Events that were not written to the audit log: the disk failed, or was too slow",
            value=self._audited.audit_events_lost,
        )

"""Prometheus metrics of views (filtered virtual topics): records scanned and matched on this broker."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from penstock.broker.views.service import ViewService

VIEWS_MAX: Final = 1000
"""Maximum number of views (filtered virtual topics) with their own metrics: bounds the size of a scrape."""
COUNTERS: Final = (
    ("scanned", "penstock_view_scanned_records", "Records scanned for readers of a view"),
    ("scanned_bytes", "penstock_view_scanned_bytes", "Bytes of record batches scanned for readers of a view"),
    ("matched", "penstock_view_matched_records", "Records sent to readers of a view"),
    (
        "unknown",
        "penstock_view_unknown_records",
        "Records whose match with a view's condition is unknown: no such header, not JSON, not a number",
    ),
)


class ViewMetrics:
    """Collects the counters of views (filtered virtual topics) at scrape time."""

    def __init__(self, service: ViewService) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric | None]:
        counts = self._service.counts
        for field, name, text in COUNTERS:
            family = CounterMetricFamily(name, text, labels=["view"])
            for view in sorted(counts)[:VIEWS_MAX]:
                family.add_metric([view], getattr(counts[view], field))
            yield None
            yield family

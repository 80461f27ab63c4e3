"""What views cost and give at this broker; the sum over all brokers tells of all."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from penstock.broker.views.service import ViewService

VIEWS_MAX: Final = 1000
"""Views that are told of one by one: a scrape stays small whatever there is."""
COUNTERS: Final = (
    ("scanned", "penstock_view_scanned_records", "Records that were looked at for readers of a view"),
    ("scanned_bytes", "penstock_view_scanned_bytes", "Bytes of batches that were looked at for readers of a view"),
    ("matched", "penstock_view_matched_records", "Records that readers of a view were sent"),
    (
        "unknown",
        "penstock_view_unknown_records",
        "Records that a view's condition could not be put to: no such header, no JSON, no number",
    ),
)


class ViewMetrics:
    """Looks when it is asked."""

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

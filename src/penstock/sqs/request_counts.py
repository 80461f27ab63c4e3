"""Prometheus counters of SQS requests and errors, by action."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

UNKNOWN: Final = "unknown"
"""The metric label of requests whose action does not exist."""
PEEK: Final = "Peek"
"""The metric label of `/_aws/sqs/messages`, which is not an action of the API."""


class RequestCounts:
    """Counts requests by action, and failed requests by action and AWS error code."""

    def __init__(self) -> None:
        self.requests: defaultdict[str, int] = defaultdict(int)
        self.errors: defaultdict[tuple[str, str], int] = defaultdict(int)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "penstock_sqs_requests", "Requests of the SQS API, by action", labels=["action"]
        )
        for action, number in self.requests.items():
            requests.add_metric([action], number)
        failed = CounterMetricFamily(
            "penstock_sqs_errors", "Requests of the SQS API that failed as a whole", labels=["action", "code"]
        )
        for labels, number in self.errors.items():
            failed.add_metric(list(labels), number)
        yield requests
        yield failed

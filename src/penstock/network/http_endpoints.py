"""Health, readiness and metrics endpoints of the HTTP port; other requests go to the schema registry or the SQS API.

A browser gets a hint of the available paths.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus
from time import monotonic
from typing import Final

import penstock
from penstock.broker.configs import Configs
from penstock.broker.settings import HEALTH_ALLOW, METRICS_ALLOW
from penstock.foundation.http import Answer, HttpRequest, HttpResponse, unavailable
from penstock.foundation.networks import Networks
from penstock.foundation.proxies import TRUSTED_PROXIES, Proxies
from penstock.foundation.steps import Steps
from penstock.foundation.time_slices import TimeSlices

_NOT_FOUND: Final = HttpResponse(
    status=HTTPStatus.NOT_FOUND,
    body=b"nothing here; try /healthz, /readyz, /metrics or /registry, or a request of the SQS API\n",
)
_HEALTH_PATHS: Final = frozenset(("/healthz", "/readyz", "/_localstack/health"))
_METRICS_PATH: Final = "/metrics"
_MONITORING_PATHS: Final = _HEALTH_PATHS | {_METRICS_PATH}
REGISTRY_PATH: Final = "/registry"
_OK: Final = HttpResponse(body=b"ok\n")
_READY: Final = HttpResponse(body=b"ready\n")
_NOT_READY: Final = HttpResponse(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"not ready\n")


class MonitoringRules:
    """Which clients may read metrics and health."""

    def __init__(self, metrics: Iterable[str] = (), health: Iterable[str] = (), proxies: Iterable[str] = ()) -> None:
        """Addresses and networks; without any, all clients may. `proxies`: load balancers, whose X-Forwarded-For is
        believed. Raises InvalidConfig."""
        self._metrics = Networks(METRICS_ALLOW, metrics)
        self._health = Networks(HEALTH_ALLOW, health)
        self.proxies: Final = Proxies(proxies)

    @classmethod
    def read(cls, configs: Configs) -> "MonitoringRules":
        return cls(configs[METRICS_ALLOW], configs[HEALTH_ALLOW], configs[TRUSTED_PROXIES])

    def refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Returns the response to a client that may not read this path; None if it may."""
        if request.path == _METRICS_PATH:
            allowed, name = self._metrics, METRICS_ALLOW
        elif request.path in _HEALTH_PATHS:
            allowed, name = self._health, HEALTH_ALLOW
        else:
            return None
        if not allowed:
            return None
        if allowed.has(self.proxies.client_host(request)):
            return None
        return HttpResponse(status=HTTPStatus.FORBIDDEN, body=f"your address is not in {name}\n".encode())


class HttpEndpoints:
    """Answers HTTP requests of a broker: itself for health, readiness and metrics; by calling `queues` for SQS."""

    def __init__(self, *, is_ready: Callable[[], bool], metrics: Callable[[], Iterator[bytes]]) -> None:
        """`metrics`: function that yields the text of all metrics in pieces."""
        self._is_ready = is_ready
        self._metrics = metrics
        self._scraping = asyncio.Lock()
        self._scrapes = 0
        self._scraped: HttpResponse | None = None
        self.queues: Answer | None = None
        self.registry: Answer | None = None
        self.slices = TimeSlices(monotonic)
        self.rules = MonitoringRules()

    def answer(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if b"x-amz-target" in request.headers:
            return self._to_queues(request)
        refusal = self.rules.refusal(request)
        if refusal is not None:
            return refusal
        match request.path:
            case "/healthz":
                return _OK
            case "/readyz":
                return _READY if self._is_ready() else _NOT_READY
            case "/metrics":
                return self._scrape()
            case "/_localstack/health" if request.method in (b"GET", b"HEAD"):
                return self._localstack_health()
        if request.path == REGISTRY_PATH or request.path.startswith(f"{REGISTRY_PATH}/"):
            return self._to_registry(request)
        # The Query protocol has its action in the parameters of the URL or of a form.
        is_page = request.method != b"POST" and "Action=" not in request.query and _is_browser(request)
        if is_page and not request.path.startswith("/_aws/"):
            return _NOT_FOUND
        return self._to_queues(request)

    def _localstack_health(self) -> HttpResponse:
        """Returns the health response that LocalStack wait scripts look for: `"sqs": "running"`, with one space."""
        is_ready = self._is_ready()
        services = {"sqs": "running" if is_ready else "starting"}
        found = {"services": services, "edition": "penstock", "version": penstock.__version__}
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return HttpResponse(status=status, body=json.dumps(found).encode(), content_type="application/json")

    async def _scrape(self) -> HttpResponse:
        """Returns the text of all metrics. Requests that arrive during a scrape wait, then share one new scrape."""
        before = self._scrapes
        async with self._scraping:
            if self._scrapes > before and self._scraped is not None:
                return self._scraped
            self._scrapes += 1
            self._scraped = None
            body = await self.slices.run(self._metrics_steps())
            self._scraped = HttpResponse(body=body, content_type="text/plain; version=0.0.4; charset=utf-8")
            return self._scraped

    def _metrics_steps(self) -> Steps[bytes]:
        pieces = []
        for piece in self._metrics():
            pieces.append(piece)
            yield
        return b"".join(pieces)

    def answer_surplus(self, request: HttpRequest, refusal: HttpResponse) -> HttpResponse | Awaitable[HttpResponse]:
        """Answers a request on a connection above the connection limit: with `refusal`, except on monitoring
        paths, so that monitoring does not take the broker for dead."""
        is_monitoring = request.method == b"GET" and request.path in _MONITORING_PATHS
        return self.answer(request) if is_monitoring else refusal

    def _to_registry(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if self.registry is None or not self._is_ready():
            return unavailable("this broker is not ready; try again")
        return self.registry(request)

    def _to_queues(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        # While the broker starts or stops, SDKs retry on a 503, here or at another broker.
        if self.queues is None or not self._is_ready():
            return unavailable("this broker is not ready; try again")
        return self.queues(request)


def _is_browser(request: HttpRequest) -> bool:
    return b"text/html" in request.headers.get(b"accept", b"")

"""What the HTTP port has besides queues: how the broker is, for whoever watches over it."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from penstock.foundation.http import Answer, HttpRequest, HttpResponse, unavailable

_NOTHING: Final = HttpResponse(
    status=HTTPStatus.NOT_FOUND,
    body=b"nothing here; try /healthz, /readyz or /metrics, or a request of the SQS API\n",
)
_WATCHED: Final = frozenset(("/healthz", "/readyz", "/metrics"))
_OK: Final = HttpResponse(body=b"ok\n")
_READY: Final = HttpResponse(body=b"ready\n")
_NOT_READY: Final = HttpResponse(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"not ready\n")


class Site:
    """Answers every HTTP request of a broker; those of the SQS API by way of `queues`."""

    def __init__(self, *, is_ready: Callable[[], bool], metrics: Callable[[], Awaitable[bytes]]) -> None:
        self._is_ready = is_ready
        self._metrics = metrics
        self.queues: Answer | None = None

    def answer(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if b"x-amz-target" in request.headers:
            return self._to_queues(request)
        match request.path:
            case "/healthz":
                return _OK
            case "/readyz":
                return _READY if self._is_ready() else _NOT_READY
            case "/metrics":
                return self._tell_metrics()
        # The Query protocol names its action among the parameters: those of the URL, or of a form.
        if request.method == b"POST" or "Action=" in request.query:
            return self._to_queues(request)
        return _NOTHING

    async def _tell_metrics(self) -> HttpResponse:
        return HttpResponse(body=await self._metrics(), content_type="text/plain; version=0.0.4; charset=utf-8")

    def answer_surplus(self, request: HttpRequest, refusal: HttpResponse) -> HttpResponse | Awaitable[HttpResponse]:
        """To those for whom there is no room. Whoever watches over the broker must not take it for dead."""
        is_watcher = request.method == b"GET" and request.path in _WATCHED
        return self.answer(request) if is_watcher else refusal

    def _to_queues(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        # One that is on its way up or down is to be asked again, or another one: SDKs do so on a 503.
        if self.queues is None or not self._is_ready():
            return unavailable("this broker is not ready; try again")
        return self.queues(request)

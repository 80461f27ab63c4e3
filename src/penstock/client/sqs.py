"""SQS client over HTTP: any broker serves every queue; if a broker does not answer, the next one is tried."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import orjson

from penstock.client.cluster import ClientSettings
from penstock.client.errors import ConnectionFailed, ConnectionLost
from penstock.client.http import Endpoint, HttpClient, HttpReply
from penstock.client.http_addresses import ADVERTISED_HTTP, find_http_addresses
from penstock.client.queue_attributes import name_of
from penstock.client.retry import Backoff
from penstock.client.signing import AccessKeys, signed
from penstock.foundation.clock import Clock, SystemClock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

BATCH_MAX: Final = 10
BATCH_BYTES_MAX: Final = 1_048_576
WAIT_S_MAX: Final = 20
"""Maximum wait time, in seconds, of one ReceiveMessage."""
NO_SUCH_QUEUE: Final = "AWS.SimpleQueueService.NonExistentQueue"
NOT_ALLOWED_CODES: Final = frozenset(
    {
        "AccessDenied",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
    }
)
"""Error codes of requests that are not signed correctly, or whose access key lacks a permission."""
TIMEOUT_S: Final = 30.0
_SHOWN_CHARS: Final = 200

FindEndpoints = Callable[[], Awaitable[Sequence[Endpoint]]]
"""A function that returns the brokers' current SQS endpoints."""


class SqsError(PenstockError):
    """An error response of the SQS API; `reason` is AWS's error code."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, reason: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status >= 500


class NoQueueEndpoint(PenstockError):
    """No broker advertises an SQS endpoint."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class SqsClient:
    """Sends SQS requests to the brokers. May be shared by the tasks of one event loop."""

    def __init__(
        self,
        find: FindEndpoints,
        *,
        keys: AccessKeys | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        """`timeout_s`: maximum seconds for one response, and for all retries of a request."""
        self._find_endpoints = find
        self._keys = keys
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._rng = rng or Random()
        self._http = HttpClient()
        self._endpoints: Sequence[Endpoint] = ()
        self._endpoint_number = 0
        self._has_responded = False
        self._is_closed = False

    async def call(self, action: str, params: dict[str, Any], *, wait_s: float = 0.0) -> dict[str, Any]:
        """Returns the result of an SQS action. Raises SqsError or ConnectionFailed. `wait_s`: how long the broker may
        wait for messages before it responds.

        A request whose response was lost is retried, as AWS's clients do: the action may be carried out twice.
        """
        body = orjson.dumps(params)
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._rng, first_s=0.05, max_s=1.0)
        deadline_s: float | None = None
        while True:
            failure: PenstockError
            try:
                return self._read(await self._post(action, body, wait_s))
            except SqsError as error:
                if not error.is_retriable:
                    raise
                failure = error
            except ConnectionFailed as error:
                # No retries if no broker has ever answered: the address is wrong.
                if not self._has_responded and not isinstance(error, ConnectionLost):
                    raise
                failure = error
            if deadline_s is None:
                deadline_s = loop.time() + self._timeout_s
            pause_s = backoff.next_s()
            if self._is_closed or loop.time() + pause_s > deadline_s:
                raise failure
            await asyncio.sleep(pause_s)

    async def _post(self, action: str, body: bytes, wait_s: float) -> HttpReply:
        """Sends the request to the first broker that is reachable, without retries; returns the response."""
        if not self._endpoints:
            self._endpoints = await self._find_endpoints()
            self._endpoint_number = self._rng.randrange(len(self._endpoints))  # spreads clients over the brokers
        failure: ConnectionFailed | None = None
        for _ in self._endpoints:
            to = self._endpoints[self._endpoint_number % len(self._endpoints)]
            headers = {
                "host": to.authority,
                "content-type": "application/x-amz-json-1.0",
                "x-amz-target": f"AmazonSQS.{action}",
            }
            if self._keys is not None:
                headers = signed(headers, body, "/", self._keys, self._clock.now_ms())
            try:
                return await self._http.post(to, headers, body, timeout_s=self._timeout_s + wait_s)
            except ConnectionLost:
                self._endpoint_number += 1
                raise
            except ConnectionFailed as error:
                self._endpoint_number += 1
                failure = error
        self._endpoints = ()  # none is reachable: look them up again
        assert failure is not None
        raise failure

    def _read(self, response: HttpReply) -> dict[str, Any]:
        self._has_responded = True
        try:
            found = orjson.loads(response.body)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            shown = response.body[:_SHOWN_CHARS].decode(errors="replace")
            raise SqsError(f"HTTP {response.status}", f"not an SQS endpoint: it sent {shown!r}", response.status)
        if response.status == 200:
            return found
        code = response.headers.get("x-amzn-query-error") or str(found.get("__type", "")).rpartition("#")[2]
        message = str(found.get("message") or found.get("Message") or f"HTTP {response.status}")
        raise SqsError(code.partition(";")[0], message, response.status)

    async def create_queue(self, name: str, attributes: Mapping[str, str], tags: Mapping[str, str]) -> str:
        """Creates a queue; returns its URL."""
        params: dict[str, Any] = {"QueueName": name, "Attributes": attributes}
        response = await self.call("CreateQueue", {**params, "tags": dict(tags)} if tags else params)
        return str(response["QueueUrl"])

    async def list_queues(self, prefix: str = "") -> list[str]:
        """Returns the names of all queues that begin with `prefix`."""
        return await self._list("ListQueues", {"QueueNamePrefix": prefix} if prefix else {}, "QueueUrls")

    async def list_sources(self, name: str) -> list[str]:
        """Returns the names of all queues that have this queue as their dead-letter queue."""
        return await self._list("ListDeadLetterSourceQueues", {"QueueUrl": name}, "queueUrls")

    async def _list(self, action: str, params: dict[str, Any], key: str) -> list[str]:
        found: list[str] = []
        while True:
            response = await self.call(action, params)
            found += map(name_of, response.get(key, ()))
            if not response.get("NextToken"):
                return found
            params = {**params, "NextToken": response["NextToken"]}

    async def scrape(self) -> list[bytes]:
        """Returns the Prometheus metrics of every broker that answers."""
        found = []
        for endpoint in await self._find_endpoints():
            try:
                response = await self._http.get(endpoint, "/metrics", timeout_s=self._timeout_s)
            except ConnectionFailed:
                continue
            if response.status == 200:
                found.append(response.body)
        return found

    def close(self) -> None:
        """Closes all connections. A pending ReceiveMessage is cancelled on the broker and receives no message."""
        self._is_closed = True
        self._http.close()


async def find_endpoints(bootstrap: str, settings: ClientSettings | None = None) -> list[Endpoint]:
    """Returns the SQS endpoints that the brokers advertise. Raises NoQueueEndpoint or ConnectionFailed."""
    return endpoints_of(await find_http_addresses(bootstrap, settings), bootstrap)


def endpoints_of(advertised: Sequence[str], bootstrap: str) -> list[Endpoint]:
    """Parses the advertised SQS endpoints, and removes empty ones and duplicates. Raises NoQueueEndpoint if one is
    invalid or none is left. `bootstrap` is used only in the error message."""
    try:
        found = dict.fromkeys(Endpoint.parse(text) for text in advertised if text)
    except ValueError as error:
        raise NoQueueEndpoint(f"the brokers at {bootstrap} have an invalid {ADVERTISED_HTTP}: {error}") from error
    if not found:
        raise NoQueueEndpoint(
            f"the brokers at {bootstrap} do not advertise an SQS endpoint ({ADVERTISED_HTTP}); are they Penstock "
            "brokers of this version? Give the endpoint, http://HOST:PORT"
        )
    return list(found)

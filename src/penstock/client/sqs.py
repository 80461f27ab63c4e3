"""Queues, asked for over HTTP in the words of the SQS API: any broker answers, so that the next one is tried when one
does not."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Final

import orjson

from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin, Resource
from penstock.client.errors import ConnectionFailed, ConnectionLost
from penstock.client.http import Endpoint, HttpAnswer, HttpClient
from penstock.client.retry import Backoff
from penstock.client.signing import AccessKeys, signed
from penstock.foundation.clock import Clock, SystemClock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

ADVERTISED_HTTP: Final = "advertised.http"
"""The setting in which a broker tells where its queues are reached."""
BATCH_MAX: Final = 10
"""Messages of one request."""
BATCH_BYTES_MAX: Final = 1_048_576
WAIT_S_MAX: Final = 20
"""How long one receive waits."""
NO_SUCH_QUEUE: Final = "AWS.SimpleQueueService.NonExistentQueue"
TIMEOUT_S: Final = 30.0
_SHOWN_CHARS: Final = 200

Find = Callable[[], Awaitable[Sequence[Endpoint]]]
"""Where queues are served now."""


class SqsRefused(PenstockError):
    """A queue said no: `reason` is AWS's code for it."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, reason: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status

    @property
    def is_passing(self) -> bool:
        """Whether the same may succeed a little later."""
        return self.status >= 500


class NoQueuesHere(PenstockError):
    """No broker says where its queues are."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class SqsClient:
    """Asks brokers about queues. For the tasks of one event loop."""

    def __init__(
        self,
        find: Find,
        *,
        keys: AccessKeys | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        """`timeout_s`: how long an answer is waited for, and how long what may yet succeed is tried again."""
        self._find = find
        self._keys = keys
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._rng = rng or Random()
        self._http = HttpClient()
        self._endpoints: Sequence[Endpoint] = ()
        self._at = 0
        self._has_answered = False
        self._is_closed = False

    async def call(self, action: str, params: dict[str, Any], *, wait_s: float = 0.0) -> dict[str, Any]:
        """What an action gives. `wait_s`: how long the broker itself may wait. SqsRefused, or ConnectionFailed.

        One whose answer was lost is asked again, as AWS's own clients do: it may be done twice.
        """
        body = orjson.dumps(params)
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._rng, first_s=0.05, max_s=1.0)
        give_up_s: float | None = None
        while True:
            failure: PenstockError
            try:
                return self._read(await self._post(action, body, wait_s))
            except SqsRefused as error:
                if not error.is_passing:
                    raise
                failure = error
            except ConnectionFailed as error:
                # Who was never there is not waited for: the address is wrong.
                if not self._has_answered and not isinstance(error, ConnectionLost):
                    raise
                failure = error
            if give_up_s is None:
                give_up_s = loop.time() + self._timeout_s
            pause_s = backoff.next_s()
            if self._is_closed or loop.time() + pause_s > give_up_s:
                raise failure
            await asyncio.sleep(pause_s)

    async def _post(self, action: str, body: bytes, wait_s: float) -> HttpAnswer:
        """Ask one broker that can be reached, once."""
        if not self._endpoints:
            self._endpoints = await self._find()
            self._at = self._rng.randrange(len(self._endpoints))  # not all clients at the same one
        failure: ConnectionFailed | None = None
        for _ in self._endpoints:
            to = self._endpoints[self._at % len(self._endpoints)]
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
                self._at += 1
                raise
            except ConnectionFailed as error:
                self._at += 1
                failure = error
        self._endpoints = ()  # all are gone: look where they are now
        assert failure is not None
        raise failure

    def _read(self, answer: HttpAnswer) -> dict[str, Any]:
        self._has_answered = True
        try:
            found = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            shown = answer.body[:_SHOWN_CHARS].decode(errors="replace")
            raise SqsRefused(f"HTTP {answer.status}", f"no queues are served there: {shown!r}", answer.status)
        if answer.status == 200:
            return found
        told = answer.headers.get("x-amzn-query-error") or str(found.get("__type", "")).rpartition("#")[2]
        message = str(found.get("message") or found.get("Message") or f"HTTP {answer.status}")
        raise SqsRefused(told.partition(";")[0], message, answer.status)

    async def scrape(self) -> list[bytes]:
        """The metrics of every broker that answers."""
        found = []
        for endpoint in await self._find():
            try:
                answer = await self._http.get(endpoint, "/metrics", timeout_s=self._timeout_s)
            except ConnectionFailed:
                continue
            if answer.status == 200:
                found.append(answer.body)
        return found

    def close(self) -> None:
        """Hang up. A receive that waits takes no message with it."""
        self._is_closed = True
        self._http.close()


async def find_endpoints(bootstrap: str) -> list[Endpoint]:
    """Where the brokers of a cluster serve queues, as each of them tells. NoQueuesHere, or ConnectionFailed."""
    async with KafkaClient(bootstrap, rng=Random()) as client:
        names = [str(node_id) for node_id in client.view.brokers]
        configs = await ClusterAdmin(client).configs(Resource.BROKER, names, [ADVERTISED_HTTP])
    return endpoints_of([values.get(ADVERTISED_HTTP) or "" for values in configs.values()], bootstrap)


def endpoints_of(told: Sequence[str], bootstrap: str) -> list[Endpoint]:
    """The addresses that brokers tell, none twice."""
    try:
        found = dict.fromkeys(Endpoint.parse(text) for text in told if text)
    except ValueError as error:
        raise NoQueuesHere(f"the brokers at {bootstrap} have a wrong {ADVERTISED_HTTP}: {error}") from error
    if not found:
        raise NoQueuesHere(
            f"the brokers at {bootstrap} do not say where their queues are ({ADVERTISED_HTTP}); is that a Penstock "
            "of this version? Give the endpoint, http://HOST:PORT"
        )
    return list(found)

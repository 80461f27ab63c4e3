"""Sends requests to a schema registry: authentication, retries at all of its URLs, and errors."""

import asyncio
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from random import Random
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from penstock.client.errors import ConnectionFailed, ConnectionLost
from penstock.client.http import HttpClient, HttpReply
from penstock.client.retry import Backoff
from penstock.client.schema_registry_errors import STORE_FAILED, URL_ADVICE, RegistryError
from penstock.client.schema_registry_urls import RegistryUrl

TIMEOUT_S: Final = 30.0
RETRY_FOR_S: Final = 30.0
STORE_TRIES_MAX: Final = 4
"""Number of responses with STORE_FAILED after which a request fails: the reason may be one that lasts."""
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_SHOWN_CHARS: Final = 200
_BACKOFF_FIRST_S: Final = 0.05
_BACKOFF_MAX_S: Final = 1.0


class RegistryHttp:
    """Sends requests to the first URL that answers. For the tasks of one event loop."""

    def __init__(
        self,
        urls: Sequence[RegistryUrl],
        *,
        user: str = "",
        password: str = "",
        timeout_s: float = TIMEOUT_S,
        retry_for_s: float = RETRY_FOR_S,
        retry_unreached: bool = True,
        rng: Random | None = None,
    ) -> None:
        """`user`, `password`: for URLs that have none. `retry_unreached`: whether requests are also retried while no
        URL has ever answered; False if a wrong URL should be reported at once."""
        if not urls:
            raise ValueError("a schema registry needs a URL")
        self._urls = tuple(urls)
        self._credentials = (user, password)
        self._timeout_s = timeout_s
        self._retry_for_s = retry_for_s
        self._retry_unreached = retry_unreached
        self._rng = rng or Random()
        self._http = HttpClient()
        self._number = 0
        """Index of the URL that is asked first, modulo the number of URLs."""
        self._has_answered = False

    @property
    def url(self) -> RegistryUrl:
        """The URL that is asked next."""
        return self._urls[self._number % len(self._urls)]

    async def call(
        self,
        method: str,
        *path: str | int,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        is_idempotent: bool = True,
    ) -> Any:
        """Returns the JSON of a response; None if it has none. Raises RegistryError or ConnectionFailed.

        `path`: the parts of the path below the registry's URL, not encoded. `is_idempotent`: whether the request may
        be sent again if the registry may have carried it out.
        """
        target = "".join(f"/{quote(str(part), safe='')}" for part in path) + (f"?{urlencode(query)}" if query else "")
        data = b"" if body is None else orjson.dumps(body)
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._rng, first_s=_BACKOFF_FIRST_S, max_s=_BACKOFF_MAX_S)
        deadline_s: float | None = None
        failures: list[RegistryError | ConnectionFailed] = []
        while True:
            url = self.url
            try:
                return self._read(url, await self._send(url, method, target, data))
            except RegistryError as error:
                if not _may_retry_error(error, is_idempotent):
                    raise
                failures.append(error)
            except ConnectionFailed as error:
                if isinstance(error, ConnectionLost) and not is_idempotent:
                    raise ConnectionLost(
                        f"{error}; the change may have been made: look before you repeat it"
                    ) from None
                failures.append(error)
            if url == self.url:  # unless another task has gone on to the next URL meanwhile
                self._number += 1
            if deadline_s is None:
                deadline_s = loop.time() + self._retry_for_s
            if len(failures) % len(self._urls):
                continue
            pause_s = backoff.next_s()
            if loop.time() + pause_s > deadline_s or not self._is_worth_waiting(failures):
                raise self._summary(failures)
            await asyncio.sleep(pause_s)

    def _is_worth_waiting(self, failures: Sequence[RegistryError | ConnectionFailed]) -> bool:
        stored = [each for each in failures if isinstance(each, RegistryError) and each.error_code == STORE_FAILED]
        return len(stored) < STORE_TRIES_MAX and (self._has_answered or self._retry_unreached)

    def _summary(self, failures: Sequence[RegistryError | ConnectionFailed]) -> RegistryError | ConnectionFailed:
        """Returns the error to raise after the last attempt: the latest one, or one that names all URLs."""
        last = failures[-len(self._urls) :]
        for each in last:
            if isinstance(each, RegistryError):
                return each
        is_lost = any(isinstance(each, ConnectionLost) for each in last)
        reasons = "; ".join(dict.fromkeys(map(str, last)))
        return (ConnectionLost if is_lost else ConnectionFailed)(f"{reasons}; is the schema registry running there?")

    async def _send(self, url: RegistryUrl, method: str, target: str, data: bytes) -> HttpReply:
        headers = {"host": url.endpoint.authority, "accept": f"{_CONTENT_TYPE}, application/json"}
        if data:
            headers["content-type"] = _CONTENT_TYPE
        user, password = (url.user, url.password) if url.user else self._credentials
        if user:
            headers["authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        path = url.path + target
        return await self._http.request(url.endpoint, method, path, headers, data, timeout_s=self._timeout_s)

    def _read(self, url: RegistryUrl, reply: HttpReply) -> Any:
        self._has_answered = True
        try:
            found = orjson.loads(reply.body) if reply.body else None
        except orjson.JSONDecodeError:
            shown = reply.body[:_SHOWN_CHARS].decode(errors="replace")
            if (
                reply.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            ):  # of the server, before it knows what is asked for
                raise RegistryError(reply.status, reply.status, f"The schema is too large: {shown.strip()}") from None
            what = f"{url} is not a schema registry: it sent HTTP {reply.status}, {shown!r}"
            raise RegistryError(reply.status, reply.status, what, URL_ADVICE) from None
        if 200 <= reply.status < 300:
            return found
        fields = found if isinstance(found, dict) else {}
        error_code, message = fields.get("error_code"), fields.get("message")
        if not isinstance(error_code, int):
            error_code = reply.status
        raise RegistryError(reply.status, error_code, str(message or f"HTTP {reply.status} from {url}"))

    def close(self) -> None:
        """Closes all connections."""
        self._http.close()


def _may_retry_error(error: RegistryError, is_idempotent: bool) -> bool:
    """Whether the request may be sent again after an error response. Servers answer 503 before they do anything."""
    return error.is_retriable if is_idempotent else error.status in (429, 503)

"""Schema registry client for threads, such as those of Spark's tasks."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from penstock.client.schema_registry import SchemaRegistryClient
from penstock.client.schema_registry_http import RETRY_FOR_S, TIMEOUT_S
from penstock.client.schema_registry_models import RegisteredSchema, ResolvedReference, Schema
from penstock.client.schema_registry_urls import parse_urls

T = TypeVar("T")

_CLOSE_S: Final = 5.0


class BlockingSchemaRegistry:
    """Registers and finds schemas. Thread-safe. Can be pickled and sent to other processes: the copy has the same
    URLs, and its own connections and cache, which are created on first use.

    >>> registry = BlockingSchemaRegistry("http://127.0.0.1:9324/registry")
    >>> registry.by_id(1).schema.type
    'AVRO'
    """

    def __init__(
        self,
        urls: str,
        *,
        user: str = "",
        password: str = "",
        timeout_s: float = TIMEOUT_S,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        """`urls`: those of one registry, separated by commas. Raises ValueError if one is invalid."""
        parse_urls(urls)
        self._options: dict[str, Any] = {
            "urls": urls,
            "user": user,
            "password": password,
            "timeout_s": timeout_s,
            "retry_for_s": retry_for_s,
        }
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._running: _RunningClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self._options

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options = state
        self._reset()

    def by_id(self, schema_id: int, *, subject: str = "", format: str = "") -> RegisteredSchema:
        """Returns the schema with an id; cached. See `SchemaRegistryClient.by_id`."""
        return self._run(lambda client: client.by_id(schema_id, subject=subject, format=format))

    def version(self, subject: str, version: int, *, deleted: bool = False, format: str = "") -> RegisteredSchema:
        """Returns a version of a subject."""
        return self._run(lambda client: client.version(subject, version, deleted=deleted, format=format))

    def latest(self, subject: str, *, format: str = "") -> RegisteredSchema:
        """Returns the latest version of a subject that is not deleted."""
        return self._run(lambda client: client.latest(subject, format=format))

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Registers a schema; returns the version that it has now, or had already."""
        return self._run(lambda client: client.register(subject, schema, normalize=normalize))

    def look_up(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Returns the version of a subject that has this schema."""
        return self._run(lambda client: client.look_up(subject, schema, normalize=normalize))

    def references(self, found: RegisteredSchema | Schema, *, subject: str = "") -> list[ResolvedReference]:
        """Returns all schemas that a schema refers to, directly or through others; each after those it needs."""
        return self._run(lambda client: client.references(found, subject=subject))

    def close(self) -> None:
        """Closes all connections, and ends the thread. The next request starts anew."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None and running.pid == os.getpid():
            running.close()

    def _run(self, call: Callable[[SchemaRegistryClient], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            # A forked process has the object, but not the thread.
            if self._running is None or self._running.pid != os.getpid():
                self._running = _RunningClient(self._options)
            running = self._running
        return running.run(call)


class _RunningClient:
    """A client on an event loop in a thread of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.pid: Final = os.getpid()
        self._client = SchemaRegistryClient(**options)
        self._loop = asyncio.new_event_loop()
        # Daemon: a process can end without closing its connections.
        self._thread = threading.Thread(target=self._loop.run_forever, name="schema-registry", daemon=True)
        self._thread.start()

    def run(self, call: Callable[[SchemaRegistryClient], Coroutine[Any, Any, T]]) -> T:
        running = asyncio.run_coroutine_threadsafe(call(self._client), self._loop)
        try:
            return running.result()
        finally:
            running.cancel()  # if the caller is interrupted

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _stop(self) -> None:
        self._client.close()
        self._loop.call_soon(self._loop.stop)  # after connections have noticed that they are closed

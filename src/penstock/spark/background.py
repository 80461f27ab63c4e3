"""The background event loop of a Spark Python worker process, with Kafka clients shared by its tasks.

Spark reuses a worker process for many tasks. Its Kafka connections stay open, so that later tasks need not connect.
Batches are sent in the background while the task encodes the next rows.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.errors import ConnectionFailed
from penstock.client.retry import Backoff
from penstock.spark.driver import with_spark_advice

T = TypeVar("T")


class BackgroundLoop:
    """An event loop on a daemon thread that runs coroutines for synchronous callers."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._clients: dict[tuple[str, ClientSettings], KafkaClient] = {}
        # A daemon thread: Spark may end the worker process at any time, and the thread must not delay that.
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the background event loop and waits for its result."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except ConnectionFailed as error:
            raise with_spark_advice(error) from error
        finally:
            running.cancel()  # after an interrupt the result is no longer needed

    def client(self, bootstrap: str, settings: ClientSettings) -> KafkaClient:
        """Returns the client for these bootstrap servers and settings; creates and connects it at the first call."""
        client = self._clients.get((bootstrap, settings))
        if client is None:
            client = self.run(_connect(bootstrap, settings))
            self._clients[bootstrap, settings] = client
        return client


async def _connect(bootstrap: str, settings: ClientSettings) -> KafkaClient:
    """Returns a connected client. Retries for `retry_for_s` while no broker is reachable, then raises."""
    client = KafkaClient(bootstrap, settings=settings)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + settings.retry_for_s
    backoff = Backoff(client.rng, first_s=settings.backoff_first_s, max_s=settings.backoff_max_s)
    while True:
        try:
            await client.refresh()
        except ConnectionFailed:
            wait_s = backoff.next_s()
            if loop.time() + wait_s > deadline_s:
                raise
            await asyncio.sleep(wait_s)
        else:
            return client


_loops: dict[int, BackgroundLoop] = {}


def background_loop() -> BackgroundLoop:
    """Returns the background event loop of this process. A forked child process gets a new loop."""
    pid = os.getpid()
    if pid not in _loops:
        _loops.clear()
        _loops[pid] = BackgroundLoop()
    return _loops[pid]

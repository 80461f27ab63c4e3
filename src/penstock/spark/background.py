"""An event loop on a thread of its own, and clients on it, for as long as the worker process lives.

Spark uses a worker process for task after task. Connections that are open already save each of them its start, and
what a task has sent travels while the next rows are made into batches.
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
from penstock.spark.driver import unreachable

T = TypeVar("T")


class Background:
    """Runs coroutines for threads that cannot wait for them otherwise."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._clients: dict[tuple[str, ClientSettings], KafkaClient] = {}
        # The process may end at any time, and nobody tells: the thread must not hold it up.
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done, and wait for it."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except ConnectionFailed as error:
            raise unreachable(error) from error
        finally:
            running.cancel()  # whoever is interrupted here does not want it any more

    def client(self, bootstrap: str, settings: ClientSettings) -> KafkaClient:
        """The client of a cluster, which knows its brokers; for all who ask for the same."""
        found = self._clients.get((bootstrap, settings))
        if found is None:
            found = self.run(_reach(bootstrap, settings))
            self._clients[bootstrap, settings] = found
        return found


async def _reach(bootstrap: str, settings: ClientSettings) -> KafkaClient:
    """Connect, and try again for a while: a broker that was killed comes back."""
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


_made: dict[int, Background] = {}


def background() -> Background:
    """The one of this process; a process that was forked from one that has it makes its own."""
    pid = os.getpid()
    if pid not in _made:
        _made.clear()
        _made[pid] = Background()
    return _made[pid]

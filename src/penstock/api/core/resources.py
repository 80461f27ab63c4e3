"""What a connection holds: producers by what they promise, transactional ones by their id, loops that are open."""

import threading
import weakref
from contextlib import ExitStack
from typing import Protocol

from penstock.api.core.cluster_lookup import Lookup
from penstock.api.core.delay_topics import HoldingTopics
from penstock.api.core.loop_thread import LoopThread
from penstock.api.core.outlet import Outlet
from penstock.api.core.queue_admin import open_sqs
from penstock.api.core.settings import LINGER_MANY_MS, Delivery, Settings, delivery_of, producer_config
from penstock.api.errors import Closed
from penstock.api.sync.transaction import Writers
from penstock.client.sqs import SqsClient
from penstock.foundation.clock import Clock, SystemClock


class Closable(Protocol):
    def close(self) -> None: ...


class Resources:
    """Made when they are needed; closed all together. Any thread may ask."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.lookup = Lookup(settings, self.clock)
        self.holding = HoldingTopics(self.lookup.config)
        self.writers = Writers(settings, self.holding, self.clock)
        self._outlets: dict[tuple[Delivery, bool], Outlet] = {}
        self._queues: tuple[LoopThread, SqsClient] | None = None
        self._loops: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

    def outlet(self, delivery: str | None, *, many: bool) -> Outlet:
        """The producer that keeps a promise. One message is sent at once; of many, each waits a moment for others."""
        promised = delivery_of(delivery, self.settings, Delivery.EXACTLY_ONCE)
        with self._lock:
            self._check_open()
            outlet = self._outlets.get((promised, many))
            if outlet is None:
                config = producer_config(self.settings, promised, linger_ms=LINGER_MANY_MS if many else 0)
                outlet = self._outlets[promised, many] = Outlet(self.settings, config, self.holding, self.clock)
            return outlet

    def queues(self) -> tuple[LoopThread, SqsClient]:
        """The thread on which queues are asked, and what asks them."""
        with self._lock:
            self._check_open()
            if self._queues is None:
                sqs = open_sqs(self.settings, self.lookup, self.clock, None)
                self._queues = LoopThread("penstock-queues"), sqs
            return self._queues

    def check_open(self) -> None:
        with self._lock:
            self._check_open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the connection is closed; connect again")

    def watch(self, loop: Closable) -> None:
        """Close this loop with the connection, if it is still there by then."""
        with self._lock:
            self._check_open()
            self._loops.add(loop)

    def close(self) -> None:
        """Loops first, for they commit; then what is on its way is waited for."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            loops, outlets, queues = list(self._loops), list(self._outlets.values()), self._queues
        with ExitStack() as stack:  # whatever fails, the others are closed
            stack.callback(self.lookup.close)
            if queues is not None:
                thread, sqs = queues
                stack.callback(thread.close)
                stack.callback(thread.call, sqs.close)
            for outlet in outlets:
                stack.callback(outlet.close, self.settings.timeout_s)
            for outlet in outlets:
                stack.callback(outlet.begin_closing)
            stack.callback(self.writers.close)
            for loop in loops:
                stack.callback(loop.close)

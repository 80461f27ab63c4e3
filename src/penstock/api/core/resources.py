"""Resources of a connection: producers by delivery guarantee, transactional producers, SQS client, open loops."""

import os
import threading
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from penstock.api.core.background_producer import BackgroundProducer
from penstock.api.core.cluster_lookup import ClusterLookup
from penstock.api.core.delay_topics import DelayTopics
from penstock.api.core.loop_thread import LoopThread
from penstock.api.core.queue_admin import open_sqs
from penstock.api.core.settings import (
    LINGER_MANY_MS,
    Delivery,
    Settings,
    delivery_of,
    parse_delivery,
    producer_config,
)
from penstock.api.core.transactional_producer import ProducerPool
from penstock.api.errors import Closed, InvalidArgument
from penstock.client.address import BOOTSTRAP_DEFAULT
from penstock.client.security import SecuritySettings, librdkafka_options
from penstock.client.signing import keys_of
from penstock.client.sqs import SqsClient
from penstock.foundation.clock import Clock, SystemClock
from penstock.foundation.errors import InvalidConfig
from penstock.foundation.properties import read_properties


def settings_of(
    servers: str | None,
    delivery: str | None,
    timeout_s: float,
    client_id: str,
    refresh_s: float,
    options: Mapping[str, Any] | None,
    security: Mapping[str, str] | str | os.PathLike[str] | None,
    endpoint: str | None,
    access_key: str | None,
    secret_key: str | None,
) -> Settings:
    """Returns the settings for the arguments of connect(), with defaults from environment variables."""
    try:
        keys = keys_of(os.environ, access_key, secret_key)
        secured = _security_options(security or os.environ.get("PENSTOCK_COMMAND_CONFIG"))
    except (ValueError, InvalidConfig) as error:
        raise InvalidArgument(str(error)) from error
    return Settings(
        servers=servers or os.environ.get("PENSTOCK_BOOTSTRAP") or BOOTSTRAP_DEFAULT,
        delivery=parse_delivery(delivery),
        timeout_s=timeout_s,
        client_id=client_id,
        refresh_s=refresh_s,
        options=secured | dict(options or {}),
        endpoint=endpoint or os.environ.get("PENSTOCK_ENDPOINT") or None,
        keys=keys,
    )


def _security_options(security: Mapping[str, str] | str | os.PathLike[str] | None) -> dict[str, str]:
    """Returns the librdkafka settings for Kafka client properties, which may be in a file. Raises InvalidConfig."""
    if security is None:
        return {}
    properties = security if isinstance(security, Mapping) else read_properties(Path(security))
    SecuritySettings.parse(properties)  # reports mistakes with advice
    return librdkafka_options(properties)


class Closable(Protocol):
    def close(self) -> None: ...


class Resources:
    """A connection's resources: created on first use, closed together. Thread-safe."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.lookup = ClusterLookup(settings, self.clock)
        self.delay_topics = DelayTopics(self.lookup.config)
        self.transactional_producers = ProducerPool(settings, self.delay_topics, self.clock)
        self._producers: dict[tuple[Delivery, bool], BackgroundProducer] = {}
        self._queues: tuple[LoopThread, SqsClient] | None = None
        self._loops: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

    def producer(self, delivery: str | None, *, many: bool) -> BackgroundProducer:
        """Returns the producer for a delivery guarantee. With `many`, messages linger a moment to fill batches."""
        promised = delivery_of(delivery, self.settings, Delivery.EXACTLY_ONCE)
        with self._lock:
            self._check_open()
            producer = self._producers.get((promised, many))
            if producer is None:
                config = producer_config(self.settings, promised, linger_ms=LINGER_MANY_MS if many else 0)
                producer = self._producers[promised, many] = BackgroundProducer(
                    self.settings, config, self.delay_topics, self.clock
                )
            return producer

    def queues(self) -> tuple[LoopThread, SqsClient]:
        """Returns the event loop thread for queue requests, and the SQS client that runs on it."""
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

    def register(self, loop: Closable) -> None:
        """Registers a loop to be closed with the connection, unless the loop is garbage-collected before."""
        with self._lock:
            self._check_open()
            self._loops.add(loop)

    def close(self) -> None:
        """Closes subscriptions and work() loops, which may commit offsets; then flushes and closes the producers."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            loops, producers, queues = list(self._loops), list(self._producers.values()), self._queues
        with ExitStack() as stack:  # closes all, even if one fails
            stack.callback(self.lookup.close)
            if queues is not None:
                thread, sqs = queues
                stack.callback(thread.close)
                stack.callback(thread.call, sqs.close)
            for producer in producers:
                stack.callback(producer.close, self.settings.timeout_s)
            for producer in producers:
                stack.callback(producer.begin_closing)
            stack.callback(self.transactional_producers.close)
            for loop in loops:
                stack.callback(loop.close)

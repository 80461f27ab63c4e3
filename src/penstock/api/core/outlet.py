"""Producers: messages go in, and what became of each comes back as its Ticket is settled.

librdkafka sends in the background; a thread of ours hears what it has to say. That answers sooner than asking from
the thread that waits (82 µs against 119 µs a message, measured), and serves threads and tasks alike.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from penstock.api.core.delay_topics import HoldingTopics
from penstock.api.core.encoding import Encoded
from penstock.api.core.message import Published
from penstock.api.core.settings import Settings
from penstock.api.errors import ApiError, Closed, InvalidArgument, PublishFailed, explain, kafka_error
from penstock.foundation.clock import Clock, SystemClock

POLL_S: Final = 0.1
"""The longest that a closing producer waits for its thread to notice."""
GRACE_S: Final = 5.0
"""How much later than librdkafka, which settles every message in time, a caller gives up."""
TROUBLE_EVERY_S: Final = 30.0

log = logging.getLogger("penstock.api")
LIBRDKAFKA_LOG: Final = logging.getLogger("penstock.librdkafka")
# Fatal errors, which it writes to standard error else; they are raised as well.
LIBRDKAFKA_LOG.addHandler(logging.NullHandler())


class Ticket:
    """One message on its way. Settled when `is_settled`; then it has either `published` or an `error`."""

    __slots__ = ("_outlet", "error", "is_settled", "published", "then", "topic")

    def __init__(self, outlet: "Outlet", topic: str, then: Callable[["Ticket"], None] | None) -> None:
        self._outlet = outlet
        self.topic = topic
        self.published: Published | None = None
        self.error: KafkaError | None = None
        self.is_settled = False
        self.then = then

    def delivered(self, error: KafkaError | None, message: Delivered) -> None:
        """librdkafka's word on it."""
        if error is not None:
            self.error = error
        else:
            self.published = Published(
                topic=self.topic,
                partition=message.partition() or 0,
                offset=message.offset(),
                timestamp_ms=message.timestamp()[1],
            )
        self._outlet.settling.append(self)

    def result(self) -> Published:
        """Where the message is, or why not."""
        if self.published is not None:
            return self.published
        assert self.error is not None
        raise self._outlet.failure(self.error, f"publishing to topic {self.topic!r}")


class Trouble:
    """Says what librdkafka complains about, but not twenty times a second."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._servers = settings.servers
        self._clock = clock
        self._told_s = float("-inf")

    def __call__(self, error: KafkaError) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s >= TROUBLE_EVERY_S:
            self._told_s = now_s
            log.warning("cluster_trouble servers=%s reason=%r", self._servers, error.str())


def heard(settings: Settings, clock: Clock) -> dict[str, Any]:
    """How what librdkafka says by itself is heard, where it is polled."""
    return {"error_cb": Trouble(settings, clock), "logger": LIBRDKAFKA_LOG}


def meant(error: TypeError) -> BaseException:
    """What a TypeError of confluent-kafka stands for.

    While it reads a header's name Python looks for signals, and it takes Ctrl-C, heard there, for a name of the wrong
    type. Names have been checked before (encoding.py), so that it is never that.
    """
    return KeyboardInterrupt() if "header key" in str(error) else error


class Outlet:
    """A producer, and the thread that listens to it. Any thread may send."""

    def __init__(
        self, settings: Settings, config: dict[str, Any], holding: HoldingTopics, clock: Clock | None = None
    ) -> None:
        self._settings = settings
        self._holding = holding
        self._clock = clock or SystemClock()
        try:
            self.producer = Producer({**config, **heard(settings, self._clock)})
        except KafkaException as error:
            raise explain(kafka_error(error), "making a producer", InvalidArgument) from error
        self.settling: deque[Ticket] = deque()
        self._open = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._listen, name="penstock-deliveries", daemon=True)
        self._thread.start()

    def send(self, message: Encoded, then: Callable[[Ticket], None] | None = None) -> Ticket:
        """Send a message. `then` is called, on the listening thread, when it is settled. BufferError: not at once."""
        if message.is_delayed and not self._holding.knows(message.topic):
            raise BufferError("the cluster has to be asked whether the topic holds messages back")
        ticket = Ticket(self, message.topic, then)
        with self._changed:
            if self._is_closing:
                raise Closed("the connection is closed; connect again")
            self._open += 1  # from here on, close() waits for us
        is_sent = False
        try:
            self.producer.produce(
                message.topic,
                message.value,
                message.key,
                partition=message.partition,
                on_delivery=ticket.delivered,
                timestamp=message.timestamp_ms,
                headers=message.headers,
            )
            is_sent = True
        except KafkaException as error:
            raise self.failure(kafka_error(error), f"publishing to topic {message.topic!r}") from error
        except TypeError as error:
            raise meant(error) from error
        finally:
            if not is_sent:
                with self._changed:
                    self._open -= 1
        return ticket

    def send_waiting(self, message: Encoded, then: Callable[[Ticket], None] | None = None) -> Ticket:
        """Send a message; wait while there is no room for it. Raises what HoldingTopics.check does."""
        if message.is_delayed:
            self._holding.check(message.topic)
        give_up_s = self._clock.monotonic_s() + self._settings.timeout_s + GRACE_S
        while True:
            try:
                return self.send(message, then)
            except BufferError:
                if self._clock.monotonic_s() >= give_up_s:
                    raise self.failure(KafkaError(KafkaError._TIMED_OUT), "waiting for room to publish") from None
                with self._changed:
                    self._changed.wait(POLL_S)  # not for longer: room may have been made before we listened

    def wait(self, ticket: Ticket) -> Published:
        """What became of a message, once that is known."""
        if not ticket.is_settled:
            with self._changed:
                settled = self._changed.wait_for(lambda: ticket.is_settled, self._settings.timeout_s + GRACE_S)
            if not settled:
                raise self.failure(KafkaError(KafkaError._TIMED_OUT), f"publishing to topic {ticket.topic!r}")
        return ticket.result()

    def failure(self, error: KafkaError, doing: str) -> ApiError:
        if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return Closed(f"{doing}: the connection was closed before it was acknowledged; it may have been kept")
        return explain(error, doing, PublishFailed, self._settings.servers)

    def settle_all(self, timeout_s: float, is_enough: Callable[[], bool] = lambda: False) -> bool:
        """Wait until nothing is on its way, or what was settled so far is enough; whether that came true in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open or is_enough(), timeout_s)

    def _listen(self) -> None:
        while not self._is_closing or self._open:
            try:
                self.producer.poll(POLL_S)
            except KafkaException as error:
                # A producer that can do no more says so here as well as to whoever uses it next.
                log.info("producer_ended servers=%s reason=%r", self._settings.servers, kafka_error(error).str())
            self._settle()

    def _settle(self) -> None:
        settled = 0
        while self.settling:
            ticket = self.settling.popleft()
            ticket.is_settled = True
            if ticket.then is not None:
                ticket.then(ticket)
            settled += 1
        if settled:
            with self._changed:
                self._open -= settled
                self._changed.notify_all()

    def begin_closing(self) -> None:
        """Take nothing more. Several that are closed after this need not wait for each other's threads."""
        with self._changed:
            self._is_closing = True

    def close(self, timeout_s: float) -> None:
        """Wait for what is on its way, give up the rest, and end the thread."""
        self.begin_closing()
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.settle_all(timeout_s)
        finally:
            # Else the producer would wait for every message's own timeout.
            self.producer.purge()
            self._thread.join(timeout_s + GRACE_S)
            # It ends with its last reference. Its own close() would try to abort a transaction that is not ours any
            # more, and warn that it cannot.
            del self.producer

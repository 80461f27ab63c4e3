"""The way in: connect(), and what can be done with a connection.

mq = penstock.connect("localhost:9092")
mq.publish("orders", {"id": 1}, key="42", tag="eu")
for message in mq.subscribe("orders", group="billing"):
    print(message.json())
"""

import os
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from penstock.api.core.cluster_lookup import From, Lookup, start_of
from penstock.api.core.durations import Duration
from penstock.api.core.encoding import encode
from penstock.api.core.message import Headers, Outgoing, Published
from penstock.api.core.outlet import Outlet, Ticket
from penstock.api.core.plans import ExactlyOncePlan, SubscribePlan
from penstock.api.core.queue_admin import create_queue, list_queues, new_queue
from penstock.api.core.queue_calls import QueueCalls
from penstock.api.core.reader import Reader
from penstock.api.core.resources import Resources
from penstock.api.core.settings import (
    REFRESH_S,
    TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Delivery,
    DeliveryName,
    Settings,
    check_positive,
    parse_delivery,
)
from penstock.api.core.transformation import Work
from penstock.api.core.views import create_view, drop_view
from penstock.api.errors import ApiError, Closed, InvalidArgument, aside
from penstock.api.sync.queue import Queue
from penstock.api.sync.subscription import ExactlyOnce, Subscription
from penstock.api.sync.transaction import Transaction, transaction_of
from penstock.client.address import BOOTSTRAP_DEFAULT
from penstock.client.signing import keys_of

IN_FLIGHT_MAX: Final = 10_000
"""Messages under way before publish_many waits for the first of them."""


def connect(
    servers: str | None = None,
    *,
    delivery: DeliveryName | None = None,
    timeout_s: float = TIMEOUT_S,
    client_id: str = "penstock",
    refresh_s: float = REFRESH_S,
    options: Mapping[str, Any] | None = None,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> "Connection":
    """Connect to a cluster. NotConnected if no broker answers within `timeout_s`.

    mq = penstock.connect("localhost:9092")
    mq = penstock.connect("a:9092,b:9092", delivery="at-least-once", options={"security.protocol": "SSL"})

    servers: one that answers is enough; without any, $PENSTOCK_BOOTSTRAP or 127.0.0.1:9092.
    delivery: what publish and subscribe promise if they are not told; else publish is exactly-once, subscribe
    at-least-once. options: librdkafka's settings, by their names. refresh_s: how often subscriptions look for new
    topics and partitions.

    For queues: `endpoint` is where they are served (http://HOST:PORT) if the brokers are not to be asked, or
    $PENSTOCK_ENDPOINT; the keys sign requests, or those of $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY.
    """
    connection = Connection(
        settings_of(servers, delivery, timeout_s, client_id, refresh_s, options, endpoint, access_key, secret_key)
    )
    try:
        connection.check()
    except BaseException:
        connection.close()
        raise
    return connection


def settings_of(
    servers: str | None,
    delivery: str | None,
    timeout_s: float,
    client_id: str,
    refresh_s: float,
    options: Mapping[str, Any] | None,
    endpoint: str | None,
    access_key: str | None,
    secret_key: str | None,
) -> Settings:
    try:
        keys = keys_of(os.environ, access_key, secret_key)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    return Settings(
        servers=servers or os.environ.get("PENSTOCK_BOOTSTRAP") or BOOTSTRAP_DEFAULT,
        delivery=parse_delivery(delivery),
        timeout_s=timeout_s,
        client_id=client_id,
        refresh_s=refresh_s,
        options=dict(options or {}),
        endpoint=endpoint or os.environ.get("PENSTOCK_ENDPOINT") or None,
        keys=keys,
    )


def settle(outlet: Outlet, ticket: Ticket, number: int) -> Published:
    """What became of one message of many."""
    try:
        return outlet.wait(ticket)
    except ApiError as error:
        raise which(error, number) from error


def which(error: ApiError, number: int) -> ApiError:
    """The same error, saying which message of many it is about."""
    return type(error)(f"message {number} was not published (the {number} before it were): {error}", error.code)


def seek(lookup: Lookup, group: str, topic: str, to: From) -> dict[int, int]:
    offsets = lookup.resolve(start_of(to), lookup.partitions([topic]))
    lookup.move(group, offsets)
    return {place.partition: offset for place, offset in offsets.items()}


class Connection(Reader[Subscription, ExactlyOnce, int]):
    """A cluster to publish to and to read from. Threads may share it. Close it, or use it as a context manager.

    with penstock.connect("localhost:9092") as mq:
        mq.publish("orders", {"id": 1})
    """

    def __init__(self, settings: Settings) -> None:
        self._resources = Resources(settings)
        self._settings = settings
        # What was published and forgotten still goes out, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, self._resources.close)

    def check(self) -> None:
        """NotConnected, with the reason, unless a broker answers.

        mq.check()
        """
        self._resources.check_open()
        self._resources.lookup.check()

    # -- publishing

    def publish(
        self,
        topic: str,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Headers | None = None,
        tag: str | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | int | None = None,
        delivery: DeliveryName | None = None,
    ) -> Published:
        """Publish a message, and wait until it is acknowledged as `delivery` asks for.

        place = mq.publish("orders", {"id": 1}, key="42", tag="eu")
        print(place.partition, place.offset)

        bytes and str go as they are, None is a tombstone, anything else is written as JSON. Messages with the same
        key stay in order. at-most-once does not wait for the broker, and knows no offset. `delay` ("30s") or
        `deliver_at` hold it back, on a topic with delayed.messages=true.
        """
        outlet = self._resources.outlet(delivery, many=False)
        message = Outgoing(
            value,
            key=key,
            headers=headers,
            tag=tag,
            partition=partition,
            timestamp=timestamp,
            delay=delay,
            deliver_at=deliver_at,
        )
        return outlet.wait(outlet.send_waiting(encode(topic, message)))

    def publish_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        max_in_flight: int = IN_FLIGHT_MAX,
        delivery: DeliveryName | None = None,
    ) -> list[Published]:
        """Publish many messages, and wait for all: values, or Outgoing where more is to be said.

        mq.publish_many("orders", [{"id": 1}, penstock.Outgoing({"id": 2}, key="42")])
        """
        return list(self.publish_stream(topic, messages, max_in_flight=max_in_flight, delivery=delivery))

    def publish_stream(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        max_in_flight: int = IN_FLIGHT_MAX,
        delivery: DeliveryName | None = None,
    ) -> Iterator[Published]:
        """Publish messages for as long as the answers are asked for, in order; bounded memory, however many they are.

        for place in mq.publish_stream("lines", open("huge.txt")):
            ...
        """
        check_positive("max_in_flight", max_in_flight)
        outlet = self._resources.outlet(delivery, many=True)
        waiting: deque[Ticket] = deque()
        number = 0
        for message in messages:
            outgoing = message if isinstance(message, Outgoing) else Outgoing(message)
            waiting.append(outlet.send_waiting(encode(topic, outgoing)))
            while waiting and (waiting[0].is_settled or len(waiting) >= max_in_flight):
                yield settle(outlet, waiting.popleft(), number)
                number += 1
        while waiting:
            yield settle(outlet, waiting.popleft(), number)
            number += 1

    def transaction(
        self, transactional_id: str, *, transaction_timeout_s: float = TRANSACTION_TIMEOUT_S
    ) -> Transaction:
        """Messages that count all together or not at all. The id is yours alone: a second user fences the first.

        with mq.transaction("billing-1") as tx:
            tx.publish("invoices", {"id": 1})
            tx.publish("audit", {"invoice": 1})
        """
        return transaction_of(self._resources.writers, transactional_id, transaction_timeout_s)

    # -- reading: see core/reader.py

    def _subscribe(self, plan: SubscribePlan) -> Subscription:
        loop = Subscription(self, plan.open(self._resources), self._resources.clock)
        self._resources.watch(loop)
        return loop

    def _exactly_once(self, plan: ExactlyOncePlan) -> ExactlyOnce:
        loop = ExactlyOnce(self, plan.open(self._resources), self._resources.clock)
        self._resources.watch(loop)
        return loop

    def _pass_on(self, messages: Subscription, work: Work, batch: int, delivery: Delivery) -> int:
        count = 0
        with messages:
            outlet = self._resources.outlet(delivery, many=True)
            for read in messages.batches(batch):
                # All of them before any is sent: if one fails, the others have not been published in vain.
                made = [each for message in read for each in work.results(work.transform(message), message)]
                try:
                    for ticket in [outlet.send_waiting(each) for each in made]:
                        outlet.wait(ticket)
                except Closed:  # by another thread: what was read is not committed, and comes again
                    break
                count += len(read)
        return count

    def _pass_through(self, loop: ExactlyOnce, work: Work) -> int:
        count = 0
        with loop:
            for message in loop:
                made = work.results(work.transform(message), message)
                try:
                    for each in made:
                        loop._send(each)
                except Closed:  # by another thread: the message is not committed, and comes again
                    break
                count += message.attempt == 1
        return count

    def seek(self, group: str, topic: str, to: From) -> dict[int, int]:
        """Set where a group goes on; it must have no members now. The offset in each partition.

        mq.seek("billing", "orders", to="earliest")
        mq.seek("billing", "orders", to=datetime(2026, 1, 31, tzinfo=UTC))
        """
        self._resources.check_open()
        return seek(self._resources.lookup, group, topic, to)

    # -- views

    def create_view(self, name: str, *, of: str, where: str, idle: Duration | None = None) -> None:
        """Make a view of a topic: a topic to be read only, with those of its messages that match.

        mq.create_view("orders-eu", of="orders", where="tag IN ('eu', 'uk') AND priority > 3")

        idle: drop it when nobody has read it for so long. InvalidArgument shows what is wrong with a condition.
        """
        self._resources.check_open()
        create_view(self._resources.lookup, name, of, where, idle)

    def drop_view(self, name: str) -> None:
        """Drop a view; its topic stays.

        mq.drop_view("orders-eu")
        """
        self._resources.check_open()
        drop_view(self._resources.lookup, name)

    # -- queues

    def queue(self, name: str) -> Queue:
        """A queue, by its name. Whether it is there is known when it is used.

        mq.queue("jobs").send({"id": 1})
        """
        thread, sqs = self._resources.queues()
        return Queue(self, self._resources, thread, QueueCalls(sqs, name))

    def queues(self, prefix: str = "") -> list[str]:
        """The names of all queues, or of those that begin so.

        mq.queues("job")
        """
        thread, sqs = self._resources.queues()
        return thread.run(list_queues(sqs, prefix))

    def create_queue(
        self,
        name: str,
        *,
        fifo: bool = False,
        delay: Duration | None = None,
        visibility: Duration | None = None,
        wait: Duration | None = None,
        retention: Duration | None = None,
        dead_letter: str | Queue | None = None,
        max_receives: int | None = None,
        from_topic: str | None = None,
        partitions: int | None = None,
        content_based_deduplication: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> Queue:
        """Make a queue, or be content with the one that is there if it is as asked for.

        mq.create_queue("jobs-dead")
        mq.create_queue("jobs", visibility="1m", dead_letter="jobs-dead", max_receives=3)
        mq.create_queue("payments.fifo", content_based_deduplication=True)
        mq.create_queue("audit", from_topic="orders")

        What is received `max_receives` times (5) and not deleted goes to the dead_letter queue. from_topic: work off
        the messages of a topic, next to consumer groups that read them. The name of a FIFO queue ends in `.fifo`.
        """
        wanted = new_queue(
            name,
            fifo=fifo,
            delay=delay,
            visibility=visibility,
            wait=wait,
            retention=retention,
            dead_letter=dead_letter,
            max_receives=max_receives,
            from_topic=from_topic,
            partitions=partitions,
            content_based_deduplication=content_based_deduplication,
        )
        thread, sqs = self._resources.queues()
        thread.run(create_queue(sqs, name, wanted, tags))
        return self.queue(name)

    def delete_queue(self, name: str) -> None:
        """Delete a queue, with all that is in it. The topic of one that was made by from_topic stays.

        mq.delete_queue("jobs")
        """
        thread, sqs = self._resources.queues()
        thread.run(QueueCalls(sqs, name).delete_queue())

    # -- the end

    def close(self) -> None:
        """End all loops, wait for what is on its way, and let go. Afterwards no thread is left.

        mq.close()
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with aside(error):
            self.close()

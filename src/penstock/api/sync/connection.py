"""connect() and Connection: the blocking Python API.

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
from typing import Any, Self

from penstock.api.core.background_producer import BackgroundProducer, DeliveryReport
from penstock.api.core.cluster_lookup import From
from penstock.api.core.durations import Duration
from penstock.api.core.encoding import encode
from penstock.api.core.message import Headers, Outgoing, Published
from penstock.api.core.plans import ExactlyOncePlan, SubscribePlan
from penstock.api.core.queue_admin import create_queue, list_queues, new_queue
from penstock.api.core.queue_calls import QueueCalls
from penstock.api.core.reader import Reader
from penstock.api.core.resources import Resources, settings_of
from penstock.api.core.settings import (
    IN_FLIGHT_MAX,
    REFRESH_S,
    TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Delivery,
    DeliveryName,
    Settings,
    check_positive,
)
from penstock.api.core.transformation import Transformation
from penstock.api.core.views import create_view, drop_view
from penstock.api.errors import ApiError, Closed, add_note_to, with_message_number
from penstock.api.sync.queue import Queue
from penstock.api.sync.subscription import ExactlyOnce, Subscription
from penstock.api.sync.transaction import Transaction


def connect(
    servers: str | None = None,
    *,
    delivery: DeliveryName | None = None,
    timeout_s: float = TIMEOUT_S,
    client_id: str = "penstock",
    refresh_s: float = REFRESH_S,
    options: Mapping[str, Any] | None = None,
    security: Mapping[str, str] | str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> "Connection":
    """Connects to a cluster. Raises NotConnected if no broker answers within `timeout_s`.

    mq = penstock.connect("localhost:9092")
    mq = penstock.connect("a:9093,b:9093", delivery="at-least-once", security="client.properties")

    servers: bootstrap servers, one that answers is enough; default $PENSTOCK_BOOTSTRAP or 127.0.0.1:9092.
    delivery: guarantee of publish and subscribe; default exactly-once for publish, at-least-once for subscribe.
    refresh_s: how often subscriptions look for new topics and partitions. options: librdkafka settings.
    security: Kafka client properties (security.protocol, sasl.…, ssl.…) as a dict or a file; default
    $PENSTOCK_COMMAND_CONFIG. Their values may be references to secrets, such as ${env:PASSWORD}.
    endpoint: SQS endpoint of the queues, http://HOST:PORT; default $PENSTOCK_ENDPOINT, else from the brokers.
    access_key, secret_key: sign queue requests; default $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY.
    """
    connection = Connection(
        settings_of(
            servers, delivery, timeout_s, client_id, refresh_s, options, security, endpoint, access_key, secret_key
        )
    )
    try:
        connection.check()
    except BaseException:
        connection.close()
        raise
    return connection


class Connection(Reader[Subscription, ExactlyOnce, int]):
    """A connection to a cluster, for publishing, reading and queues. Thread-safe. Close it, or use `with`.

    with penstock.connect("localhost:9092") as mq:
        mq.publish("orders", {"id": 1})
    """

    def __init__(self, settings: Settings) -> None:
        self._resources = Resources(settings)
        self._settings = settings
        # Messages in flight are still sent if the connection is not closed, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, self._resources.close)

    def check(self) -> None:
        """Raises NotConnected, with the reason, unless a broker answers.

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
        """Publishes a message, and waits until it is acknowledged according to `delivery`.

        place = mq.publish("orders", {"id": 1}, key="42", tag="eu")
        print(place.partition, place.offset)

        bytes and str are sent as they are, None is a tombstone, any other value is encoded as JSON. Messages with the
        same key go to the same partition, in order. at-most-once does not wait, and returns no offset. `delay`
        ("30s") or `deliver_at` delay the delivery, on a topic with delayed.messages=true.
        """
        producer = self._resources.producer(delivery, many=False)
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
        return producer.wait(producer.send_waiting(encode(topic, message)))

    def publish_many(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        max_in_flight: int = IN_FLIGHT_MAX,
        delivery: DeliveryName | None = None,
    ) -> list[Published]:
        """Publishes messages and waits until all are acknowledged. Each message is a plain value or an Outgoing.

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
        """Publishes messages as you iterate, at most `max_in_flight` unacknowledged; yields a Published for each.
        delivery: the guarantee, as in `publish`; None: that of the connection, by default exactly-once.

        for place in mq.publish_stream("lines", open("huge.txt")):
            ...
        """
        check_positive("max_in_flight", max_in_flight)
        producer = self._resources.producer(delivery, many=True)
        waiting: deque[DeliveryReport] = deque()
        number = 0
        for message in messages:
            waiting.append(producer.send_waiting(encode(topic, message)))
            while waiting and (waiting[0].is_complete or len(waiting) >= max_in_flight):
                yield _wait_for_delivery(producer, waiting.popleft(), number)
                number += 1
        while waiting:
            yield _wait_for_delivery(producer, waiting.popleft(), number)
            number += 1

    def transaction(
        self, transactional_id: str, *, transaction_timeout_s: float = TRANSACTION_TIMEOUT_S
    ) -> Transaction:
        """Returns a transaction: its messages are delivered all together or not at all.

        with mq.transaction("billing-1") as tx:
            tx.publish("invoices", {"id": 1})
            tx.publish("audit", {"invoice": 1})

        Each process needs its own transactional_id: a second producer with the same id fences the first.
        """
        return Transaction(self._resources.transactional_producers, transactional_id, transaction_timeout_s)

    # -- reading: see core/reader.py

    def _subscribe(self, plan: SubscribePlan) -> Subscription:
        loop = Subscription(self, plan.open(self._resources), self._resources.clock)
        self._resources.register(loop)
        return loop

    def _exactly_once(self, plan: ExactlyOncePlan) -> ExactlyOnce:
        loop = ExactlyOnce(self, plan.open(self._resources), self._resources.clock)
        self._resources.register(loop)
        return loop

    def _process(self, messages: Subscription, step: Transformation, batch: int, delivery: Delivery) -> int:
        count = 0
        with messages:
            producer = self._resources.producer(delivery, many=True)
            for read in messages.batches(batch):
                # All results before any is sent: if one transformation fails, nothing of the batch was published.
                results = [each for message in read for each in step.results(step.transform(message), message)]
                try:
                    for report in [producer.send_waiting(each) for each in results]:
                        producer.wait(report)
                except Closed:  # by another thread: the batch is not committed, and is delivered again
                    break
                count += len(read)
        return count

    def _process_exactly_once(self, loop: ExactlyOnce, step: Transformation) -> int:
        count = 0
        with loop:
            for message in loop:
                results = step.results(step.transform(message), message)
                try:
                    for each in results:
                        loop._send(each)
                except Closed:  # by another thread: the message is not committed, and is delivered again
                    break
                count += message.attempt == 1
        return count

    def seek(self, group: str, topic: str, to: From) -> dict[int, int]:
        """Sets a consumer group's committed offsets in a topic to the position `to`; returns them by partition.

        mq.seek("billing", "orders", to="earliest")
        mq.seek("billing", "orders", to=datetime(2026, 1, 31, tzinfo=UTC))

        Raises Busy if the group has members.
        """
        self._resources.check_open()
        return self._resources.lookup.seek(group, topic, to)

    # -- views

    def create_view(self, name: str, *, of: str, where: str, idle: Duration | None = None) -> None:
        """Creates a view: a read-only topic with the messages of topic `of` that match the condition `where`.

        mq.create_view("orders-eu", of="orders", where="tag IN ('eu', 'uk') AND priority > 3")

        idle: the view is dropped after this time without a reader. Raises InvalidArgument if `where` is invalid.
        """
        self._resources.check_open()
        create_view(self._resources.lookup, name, of, where, idle)

    def drop_view(self, name: str) -> None:
        """Drops a view (filtered read-only topic). The topic that the view reads from stays.

        mq.drop_view("orders-eu")
        """
        self._resources.check_open()
        drop_view(self._resources.lookup, name)

    # -- queues

    def queue(self, name: str) -> Queue:
        """Returns the queue of this name. The first request to the queue checks whether it exists.

        mq.queue("jobs").send({"id": 1})
        """
        thread, sqs = self._resources.queues()
        return Queue(self, self._resources, thread, QueueCalls(sqs, name))

    def queues(self, prefix: str = "") -> list[str]:
        """Returns the names of all queues that begin with `prefix`.

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
        """Creates a queue. Succeeds if a queue with the same attributes exists already.

        mq.create_queue("jobs-dead")
        mq.create_queue("jobs", visibility="1m", dead_letter="jobs-dead", max_receives=3)
        mq.create_queue("payments.fifo", content_based_deduplication=True)
        mq.create_queue("audit", from_topic="orders")

        A message that was received `max_receives` times (default 5) and not deleted moves to the dead_letter queue.
        from_topic: the queue delivers the messages of this topic; consumer groups can still read the topic. The name
        of a FIFO queue ends in `.fifo`.
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
        """Deletes a queue and its messages. The topic of a queue created with from_topic stays.

        mq.delete_queue("jobs")
        """
        thread, sqs = self._resources.queues()
        thread.run(QueueCalls(sqs, name).delete_queue())

    # -- closing

    def close(self) -> None:
        """Closes all subscriptions and work() loops, flushes published messages, and ends the connection's threads.

        mq.close()
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with add_note_to(error):
            self.close()


def _wait_for_delivery(producer: BackgroundProducer, report: DeliveryReport, number: int) -> Published:
    """Waits for the delivery of a message of publish_many. Adds the message index to the text of an error."""
    try:
        return producer.wait(report)
    except ApiError as error:
        raise with_message_number(error, number) from error

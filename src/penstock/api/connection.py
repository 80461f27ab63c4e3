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

from penstock.api.encoding import encode
from penstock.api.errors import ApiError, InvalidArgument
from penstock.api.handled import IdempotentBy
from penstock.api.lookup import From, Lookup, Topics, start_of
from penstock.api.message import Headers, Outgoing, Published
from penstock.api.outlet import Outlet, Ticket
from penstock.api.plan import BATCH, BATCH_S, COMMIT_EVERY_S, PREFETCH, Store, exactly_once_plan, subscribe_plan
from penstock.api.processing import Route, Transform, results
from penstock.api.resources import Resources
from penstock.api.settings import (
    PROCESSING_TIMEOUT_S,
    REFRESH_S,
    TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Delivery,
    DeliveryName,
    Settings,
    check_positive,
    delivery_of,
    parse_delivery,
)
from penstock.api.subscription import ExactlyOnce, Subscription
from penstock.api.transaction import Transaction, transaction_of
from penstock.client.address import BOOTSTRAP_DEFAULT

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
) -> "Connection":
    """Connect to a cluster. NotConnected if no broker answers within `timeout_s`.

    mq = penstock.connect("localhost:9092")
    mq = penstock.connect("a:9092,b:9092", delivery="at-least-once", options={"security.protocol": "SSL"})

    servers: one that answers is enough; without any, $PENSTOCK_BOOTSTRAP or 127.0.0.1:9092.
    delivery: what publish and subscribe promise if they are not told; else publish is exactly-once, subscribe
    at-least-once. options: librdkafka's settings, by their names. refresh_s: how often subscriptions look for new
    topics and partitions.
    """
    connection = Connection(settings_of(servers, delivery, timeout_s, client_id, refresh_s, options))
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
) -> Settings:
    return Settings(
        servers=servers or os.environ.get("PENSTOCK_BOOTSTRAP") or BOOTSTRAP_DEFAULT,
        delivery=parse_delivery(delivery),
        timeout_s=timeout_s,
        client_id=client_id,
        refresh_s=refresh_s,
        options=dict(options or {}),
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


def check_no_transaction(delivery: Delivery, transactional_id: str | None) -> None:
    if transactional_id is not None:
        raise InvalidArgument(f"transactional_id= is for delivery='exactly-once', not for {delivery.value!r}")


class Connection:
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
        delivery: DeliveryName | None = None,
    ) -> Published:
        """Publish a message, and wait until it is acknowledged as `delivery` asks for.

        place = mq.publish("orders", {"id": 1}, key="42", tag="eu")
        print(place.partition, place.offset)

        bytes and str go as they are, None is a tombstone, anything else is written as JSON. Messages with the same
        key stay in order. at-most-once does not wait for the broker, and knows no offset.
        """
        outlet = self._resources.outlet(delivery, many=False)
        message = Outgoing(value, key=key, headers=headers, tag=tag, partition=partition, timestamp=timestamp)
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

    # -- reading

    def subscribe(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        delivery: DeliveryName | None = None,
        from_: From = "earliest",
        tags: str | Iterable[str] | None = None,
        limit: int | None = None,
        idle_timeout_s: float | None = None,
        max_in_flight: int = 1,
        idempotent_by: IdempotentBy | None = None,
        store: Store | None = None,
        prefetch: int = PREFETCH,
        commit_every_s: float = COMMIT_EVERY_S,
        processing_timeout_s: float = PROCESSING_TIMEOUT_S,
    ) -> Subscription:
        """Read messages, sharing them with the other members of a group, or alone without one.

        for message in mq.subscribe("orders", group="billing", delivery="at-least-once"):
            charge(message.json())
        for message in mq.subscribe(re.compile("orders-.*"), from_=datetime(2026, 1, 31, tzinfo=UTC)):
            print(message)  # alone: everything since then, and nothing is committed

        from_: where a group begins that has committed nothing, and where a reader alone does. tags: only messages
        with one of them. limit, idle_timeout_s: when to end. idempotent_by, store: see docs/delivery.md.
        max_in_flight above 1: messages may be worked on at the same time, and each says when it is done().
        prefetch: how many are taken at a time; at-most-once may lose as many in a crash. processing_timeout_s: who
        needs longer for a message is given up by the group.
        """
        plan = subscribe_plan(
            self._settings,
            topics,
            group=group,
            delivery=delivery,
            from_=from_,
            tags=tags,
            limit=limit,
            idle_timeout_s=idle_timeout_s,
            max_in_flight=max_in_flight,
            prefetch=prefetch,
            processing_timeout_s=processing_timeout_s,
            commit_every_s=commit_every_s,
            idempotent_by=idempotent_by,
            store=store,
        )
        loop = Subscription(self, plan.open(self._resources), self._resources.clock)
        self._resources.watch(loop)
        return loop

    def exactly_once(
        self,
        topics: Topics,
        *,
        group: str,
        transactional_id: str | None = None,
        from_: From = "earliest",
        tags: str | Iterable[str] | None = None,
        limit: int | None = None,
        idle_timeout_s: float | None = None,
        batch: int = BATCH,
        batch_s: float = BATCH_S,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
        processing_timeout_s: float = PROCESSING_TIMEOUT_S,
    ) -> ExactlyOnce:
        """A loop whose results count together with its reading: both, or neither.

        with mq.exactly_once("orders", group="billing") as loop:
            for message in loop:
                loop.publish("invoices", invoice(message.json()), key=message.key)

        batch, batch_s: how many messages, and for how long, share a transaction. transactional_id: one for each
        process, always the same; then what a crash left open ends with the restart, not after transaction_timeout_s.
        """
        plan = exactly_once_plan(
            topics,
            group=group,
            from_=from_,
            tags=tags,
            limit=limit,
            idle_timeout_s=idle_timeout_s,
            batch=batch,
            batch_s=batch_s,
            transactional_id=transactional_id,
            transaction_timeout_s=transaction_timeout_s,
            processing_timeout_s=processing_timeout_s,
        )
        loop = ExactlyOnce(self, plan.open(self._resources), self._resources.clock)
        self._resources.watch(loop)
        return loop

    def process(
        self,
        topics: Topics,
        to: Route,
        *,
        group: str,
        transform: Transform,
        delivery: DeliveryName = Delivery.EXACTLY_ONCE,
        transactional_id: str | None = None,
        from_: From = "earliest",
        tags: str | Iterable[str] | None = None,
        limit: int | None = None,
        idle_timeout_s: float | None = None,
        batch: int = BATCH,
        batch_s: float = BATCH_S,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
        processing_timeout_s: float = PROCESSING_TIMEOUT_S,
    ) -> int:
        """Read, transform, publish, until Ctrl-C, `limit` or `idle_timeout_s`; how many messages were read.

        mq.process("orders", "invoices", group="billing", transform=lambda message: invoice(message.json()))
        mq.process("orders", lambda message: f"orders-{message.tag}", group="split", transform=lambda m: m.value)

        transform gives a value, an Outgoing, a list of those, or None for nothing; results keep the key. An exception
        ends it, and the message comes again next time.
        """
        common: dict[str, Any] = {
            "group": group,
            "from_": from_,
            "tags": tags,
            "limit": limit,
            "idle_timeout_s": idle_timeout_s,
            "processing_timeout_s": processing_timeout_s,
        }
        promised = delivery_of(delivery, self._settings, Delivery.EXACTLY_ONCE)
        if promised is not Delivery.EXACTLY_ONCE:
            check_no_transaction(promised, transactional_id)
            with self.subscribe(topics, delivery=promised, **common) as subscription:
                return self._pass_on(subscription, self._resources.outlet(promised, many=True), transform, to, batch)
        with self.exactly_once(
            topics,
            batch=batch,
            batch_s=batch_s,
            transactional_id=transactional_id,
            transaction_timeout_s=transaction_timeout_s,
            **common,
        ) as loop:
            count = 0
            for message in loop:
                for each in results(transform(message), message, to):
                    loop._send(each)
                count += message.attempt == 1
            return count

    def _pass_on(
        self, subscription: Subscription, outlet: Outlet, transform: Transform, to: Route, batch: int
    ) -> int:
        count = 0
        for read in subscription.batches(batch):
            tickets = [
                outlet.send_waiting(each) for message in read for each in results(transform(message), message, to)
            ]
            for ticket in tickets:
                outlet.wait(ticket)
            count += len(read)
        return count

    def seek(self, group: str, topic: str, to: From) -> dict[int, int]:
        """Set where a group goes on; it must have no members now. The offset in each partition.

        mq.seek("billing", "orders", to="earliest")
        mq.seek("billing", "orders", to=datetime(2026, 1, 31, tzinfo=UTC))
        """
        self._resources.check_open()
        return seek(self._resources.lookup, group, topic, to)

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
        self.close()

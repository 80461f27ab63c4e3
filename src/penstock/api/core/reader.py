"""Base class with subscribe(), exactly_once() and process() for the connections for threads and for asyncio."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from penstock.api.core.cluster_lookup import From, Missing, Topics
from penstock.api.core.handled import IdempotentBy
from penstock.api.core.loop_options import LoopOptions, tags_of
from penstock.api.core.plans import (
    BATCH,
    BATCH_S,
    COMMIT_EVERY_S,
    PREFETCH,
    ExactlyOncePlan,
    Store,
    SubscribePlan,
    parse_options,
    transactional_id_of,
)
from penstock.api.core.settings import (
    PROCESSING_TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Delivery,
    DeliveryName,
    Settings,
    delivery_of,
)
from penstock.api.core.transformation import Route, Transform, Transformation
from penstock.api.errors import InvalidArgument

Messages = TypeVar("Messages")
Loop = TypeVar("Loop")
Count = TypeVar("Count")


class Reader(ABC, Generic[Messages, Loop, Count]):
    """Base class of Connection and AsyncConnection: checks arguments of subscribe(), exactly_once() and process()."""

    _settings: Settings

    @abstractmethod
    def _subscribe(self, plan: SubscribePlan) -> Messages: ...

    @abstractmethod
    def _exactly_once(self, plan: ExactlyOncePlan) -> Loop: ...

    @abstractmethod
    def _process(self, messages: Messages, step: Transformation, batch: int, delivery: Delivery) -> Count:
        """Publishes the results of `step` for each batch of up to `batch` messages. `delivery`: at-most-once or
        at-least-once. Returns the number of messages read."""

    @abstractmethod
    def _process_exactly_once(self, loop: Loop, step: Transformation) -> Count:
        """Publishes what `step` returns for each message, in transactions of `loop`. Returns how many were read."""

    def subscribe(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        delivery: DeliveryName | None = None,
        from_: From = "earliest",
        tags: str | Iterable[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        idle_timeout_s: float | None = None,
        max_in_flight: int = 1,
        idempotent_by: IdempotentBy | None = None,
        store: Store | None = None,
        prefetch: int = PREFETCH,
        commit_every_s: float = COMMIT_EVERY_S,
        processing_timeout_s: float = PROCESSING_TIMEOUT_S,
        missing: Missing = "error",
    ) -> Messages:
        """Returns an iterator over messages, as a member of a consumer group; without a group, over all messages.

        for message in mq.subscribe("orders", group="billing", delivery="at-least-once"):
            charge(message.json())
        for message in mq.subscribe(re.compile("orders-.*"), from_=datetime(2026, 1, 31, tzinfo=UTC)):
            print(message)  # alone: everything since then, and nothing is committed

        delivery: at-most-once commits offsets before delivery; at-least-once after processing, every commit_every_s
        seconds; exactly-once is at-least-once with idempotent_by. None: as given to connect(), else at-least-once.
        from_: where to start if the group has no committed offset, or there is no group.
        tags: only messages with one of these tags.
        where: only messages that match this condition, evaluated by the broker through a view (docs/views.md).
        limit, idle_timeout_s: the loop ends after this many messages, or after this long without a message.
        max_in_flight: above 1, messages may be processed concurrently, and each is finished by message.done().
        idempotent_by, store: skips messages that were handled before (docs/delivery.md).
        prefetch: messages fetched at a time; a crash can lose this many messages with at-most-once.
        processing_timeout_s: the group removes a member that takes longer for one message.
        missing: if a topic does not exist, "error" raises UnknownTopic, "wait" awaits it, "create" creates it.
        With asyncio: `async for`.
        """
        plan = SubscribePlan(
            read_options=parse_options(topics, group, from_, prefetch, processing_timeout_s, idle_timeout_s, missing),
            loop_options=LoopOptions(
                tags=tags_of(tags), limit=limit, idle_timeout_s=idle_timeout_s, max_in_flight=max_in_flight
            ),
            delivery=delivery_of(delivery, self._settings, Delivery.AT_LEAST_ONCE),
            commit_every_s=commit_every_s,
            idempotent_by=idempotent_by,
            store=store,
            where=where,
        )
        return self._subscribe(plan)

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
        missing: Missing = "error",
    ) -> Loop:
        """Returns a loop that commits, in one transaction, the offsets it has read and the messages it publishes.

        with mq.exactly_once("orders", group="billing") as loop:
            for message in loop:
                loop.publish("invoices", invoice(message.json()), key=message.key)

        batch, batch_s: maximum number of messages, and duration, of one transaction. transactional_id: a fixed id for
        each process: a restart aborts the transaction that a crash left open. Without an id, that transaction is
        aborted after transaction_timeout_s. With asyncio: `async with`, `async for`, `await loop.publish`.
        """
        prefetch = max(1, min(batch, PREFETCH))
        plan = ExactlyOncePlan(
            read_options=parse_options(topics, group, from_, prefetch, processing_timeout_s, idle_timeout_s, missing),
            loop_options=LoopOptions(tags=tags_of(tags), limit=limit, idle_timeout_s=idle_timeout_s),
            transactional_id=transactional_id_of(transactional_id, group),
            transaction_timeout_s=transaction_timeout_s,
            batch=batch,
            batch_s=batch_s,
        )
        return self._exactly_once(plan)

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
        missing: Missing = "error",
    ) -> Count:
        """Reads, transforms and publishes messages, until Ctrl-C or a limit. Returns the number of messages read.

        mq.process("orders", "invoices", group="billing", transform=lambda message: invoice(message.json()))
        mq.process("orders", lambda message: f"orders-{message.tag}", group="split", transform=lambda m: m.value)

        transform returns a value, an Outgoing, a list of these, or None for no result; a result without a key gets
        the key of the message. An exception ends the call; except with at-most-once, the next call receives the
        message again. With asyncio: `await`, and transform may be a coroutine function. The other options are those
        of subscribe() and exactly_once(). Unless `delivery` is exactly-once, there are no transactions: batch is the
        maximum number of messages transformed before their results are published.
        """
        promised = delivery_of(delivery, self._settings, Delivery.EXACTLY_ONCE)
        if promised is Delivery.EXACTLY_ONCE:
            loop = self.exactly_once(
                topics,
                group=group,
                transactional_id=transactional_id,
                from_=from_,
                tags=tags,
                limit=limit,
                idle_timeout_s=idle_timeout_s,
                batch=batch,
                batch_s=batch_s,
                transaction_timeout_s=transaction_timeout_s,
                processing_timeout_s=processing_timeout_s,
                missing=missing,
            )
            return self._process_exactly_once(loop, Transformation(transform, to))
        if transactional_id is not None:
            raise InvalidArgument(f"transactional_id= is for delivery='exactly-once', not for {promised.value!r}")
        messages = self.subscribe(
            topics,
            group=group,
            delivery=promised,
            from_=from_,
            tags=tags,
            limit=limit,
            idle_timeout_s=idle_timeout_s,
            processing_timeout_s=processing_timeout_s,
            missing=missing,
        )
        return self._process(messages, Transformation(transform, to), batch, promised)

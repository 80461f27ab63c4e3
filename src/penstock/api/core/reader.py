"""How a connection is asked to read: the same for threads and for tasks, which differ in what they are given."""

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
    reading_of,
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
from penstock.api.core.transformation import Route, Transform, Work
from penstock.api.errors import InvalidArgument

Messages = TypeVar("Messages")
Loop = TypeVar("Loop")
Count = TypeVar("Count")


class Reader(ABC, Generic[Messages, Loop, Count]):
    """The reading half of a connection: what a call asks for becomes a plan, and each kind of connection opens it."""

    _settings: Settings

    @abstractmethod
    def _subscribe(self, plan: SubscribePlan) -> Messages: ...

    @abstractmethod
    def _exactly_once(self, plan: ExactlyOncePlan) -> Loop: ...

    @abstractmethod
    def _pass_on(self, messages: Messages, work: Work, batch: int, delivery: Delivery) -> Count:
        """Read batches, and publish what comes of them before the next is read."""

    @abstractmethod
    def _pass_through(self, loop: Loop, work: Work) -> Count:
        """Read messages, and publish what comes of them in the loop's transactions."""

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
        """Read messages, sharing them with the other members of a group, or alone without one.

        for message in mq.subscribe("orders", group="billing", delivery="at-least-once"):
            charge(message.json())
        for message in mq.subscribe(re.compile("orders-.*"), from_=datetime(2026, 1, 31, tzinfo=UTC)):
            print(message)  # alone: everything since then, and nothing is committed

        from_: where a group begins that has committed nothing, and where a reader alone does. tags: only messages
        with one of them. where: only messages that match this condition, of which the broker sends no others; the
        topic is then a view that is made for it (docs/views.md). limit, idle_timeout_s: when to end.
        idempotent_by, store: see docs/delivery.md.
        max_in_flight above 1: messages may be worked on at the same time, and each says when it is done().
        prefetch: how many are taken at a time; at-most-once may lose as many in a crash. processing_timeout_s: who
        needs longer for a message is given up by the group. missing: what to do about a topic that does not exist:
        "error" raises UnknownTopic, "wait" reads it once it is created, "create" creates it. In tasks: `async for`.
        """
        plan = SubscribePlan(
            reading=reading_of(topics, group, from_, prefetch, processing_timeout_s, idle_timeout_s, missing),
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
        """A loop whose results count together with its reading: both, or neither.

        with mq.exactly_once("orders", group="billing") as loop:
            for message in loop:
                loop.publish("invoices", invoice(message.json()), key=message.key)

        batch, batch_s: how many messages, and for how long, share a transaction. transactional_id: one for each
        process, always the same; then what a crash left open ends with the restart, not after transaction_timeout_s.
        In tasks: `async with`, `async for`, `await loop.publish`.
        """
        prefetch = max(1, min(batch, PREFETCH))
        plan = ExactlyOncePlan(
            reading=reading_of(topics, group, from_, prefetch, processing_timeout_s, idle_timeout_s, missing),
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
        """Read, transform, publish, until Ctrl-C, `limit` or `idle_timeout_s`; how many messages were read.

        mq.process("orders", "invoices", group="billing", transform=lambda message: invoice(message.json()))
        mq.process("orders", lambda message: f"orders-{message.tag}", group="split", transform=lambda m: m.value)

        transform gives a value, an Outgoing, a list of those, or None for nothing; results keep the key. An exception
        ends it, and the message comes again next time. In tasks: `await`, and transform may be a coroutine function.
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
            return self._pass_through(loop, Work(transform, to))
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
        return self._pass_on(messages, Work(transform, to), batch, promised)

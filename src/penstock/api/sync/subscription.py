"""Loops over messages, for threads: subscriptions, and loops that read, transform and publish exactly once."""

import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self

from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.feed import Feed, not_joined
from penstock.api.core.message import Headers, Message, Outgoing
from penstock.api.core.plans import Pipe
from penstock.api.core.settings import TIMEOUT_S, check_positive
from penstock.api.errors import Closed, aside
from penstock.foundation.clock import Clock


class Loop:
    """What both kinds of loops share. One thread iterates; any thread may close."""

    def __init__(self, owner: object, feed: Feed, clock: Clock, end: Callable[[], None]) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._feed = feed
        self._clock = clock
        self._busy = threading.Lock()
        self._is_closing = False
        # A loop that is left and forgotten leaves its group too, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, end)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        taken = self._next(1)
        if not taken:
            raise StopIteration
        return taken[0]

    def _next(self, most: int) -> list[Message]:
        """The next messages; none if the loop is over."""
        feed = self._feed
        with self._busy:
            if self._is_closing:
                return []
            feed.finish_in_hand()
            while not self._is_closing:
                if feed.is_due():
                    feed.catch_up()
                taken = feed.take(most)
                if taken:
                    return taken
                if feed.wait():
                    break
        self.close()
        return []

    def ready(self, timeout_s: float = TIMEOUT_S) -> Self:
        """Wait until it is known which partitions are ours: from then on, nothing that is published is missed.

        messages = mq.subscribe("orders", group="billing", from_="latest").ready()
        """
        give_up_s = self._clock.monotonic_s() + timeout_s
        with self._busy:
            while not self._feed.is_joined:
                if self._is_closing:
                    raise Closed("the subscription is closed; subscribe again")
                if self._clock.monotonic_s() >= give_up_s:
                    raise not_joined(timeout_s)
                self._feed.work()
        return self

    def close(self) -> None:
        """Commit what is finished, and leave the group. A message that is in hand and not done() comes again."""
        self._is_closing = True
        with self._busy:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with aside(error):
            self.close()


class Subscription(Loop):
    """Messages, one after the other. A message is finished when the next one is asked for, or by message.done().

    for message in mq.subscribe("orders", group="billing"):
        print(message.json())
    """

    def __init__(self, owner: object, feed: Feed, clock: Clock) -> None:
        super().__init__(owner, feed, clock, feed.close)

    def batches(self, most: int = 100) -> Iterator[list[Message]]:
        """Messages, as many at a time as are there: at least one, at most so many. They are finished together.

        for batch in mq.subscribe("orders", group="billing").batches(1000):
            database.insert_many([message.json() for message in batch])
        """
        check_positive("most", most)
        while taken := self._next(most):
            yield taken


class ExactlyOnce(Loop):
    """Messages whose results are published exactly once: see mq.exactly_once.

    with mq.exactly_once("orders", group="billing") as loop:
        for message in loop:
            loop.publish("invoices", invoice(message.json()), key=message.key)
    """

    def __init__(self, owner: object, pipe: Pipe, clock: Clock) -> None:
        super().__init__(owner, pipe.feed, clock, pipe.close)
        self._commits = pipe.commits

    @property
    def transactions(self) -> int:
        """How many have committed.

        with mq.exactly_once("in", group="g", limit=10) as loop: ...
        print(loop.transactions)
        """
        return self._commits.committed

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
    ) -> None:
        """Publish a message that counts when the one in hand is committed. Does not wait.

        loop.publish("invoices", {"order": message.json()["id"]}, key=message.key)
        """
        message = Outgoing(value, key=key, headers=headers, tag=tag, partition=partition, timestamp=timestamp)
        self._send(encode(topic, message))

    def _send(self, message: Encoded) -> None:
        if self._is_closing:
            raise Closed("the loop has ended; publish within it")
        self._commits.publish(message)

"""Subscription and ExactlyOnce: blocking loops over messages."""

import threading
import weakref
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Generic, Self

from penstock.api.core.commits import CommitPolicy
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.exactly_once import TransactionalCommits
from penstock.api.core.message import Headers, Message, Outgoing
from penstock.api.core.message_buffer import Commits, MessageBuffer, not_joined
from penstock.api.core.settings import TIMEOUT_S, check_positive
from penstock.api.errors import Closed, add_note_to
from penstock.foundation.clock import Clock


class Loop(Generic[Commits]):
    """Base class of Subscription and ExactlyOnce. Only one thread may iterate; any thread may close the loop."""

    def __init__(self, owner: object, buffer: MessageBuffer[Commits], clock: Clock) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._buffer = buffer
        self._clock = clock
        self._busy = threading.Lock()
        self._is_closing = False
        # A loop that is not closed leaves its group when it is garbage-collected, or when the process ends.
        self._finalizer = weakref.finalize(self, buffer.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        taken = self._next(1)
        if not taken:
            raise StopIteration
        return taken[0]

    def _next(self, most: int) -> list[Message]:
        """Waits for messages and returns up to `most`; an empty list if the loop has ended."""
        buffer = self._buffer
        with self._busy:
            if self._is_closing:
                return []
            buffer.finish_delivered()
            while not self._is_closing:
                if buffer.is_due():
                    buffer.catch_up()
                taken = buffer.take(most)
                if taken:
                    return taken
                if buffer.wait():
                    break
        self.close()
        return []

    def ready(self, timeout_s: float = TIMEOUT_S) -> Self:
        """Waits until partitions are assigned, so that no message published later is missed. Returns this loop.

        messages = mq.subscribe("orders", group="billing", from_="latest").ready()
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        with self._busy:
            while not self._buffer.is_joined:
                if self._is_closing:
                    raise Closed("the subscription is closed; subscribe again")
                if self._clock.monotonic_s() >= deadline_s:
                    raise not_joined(timeout_s)
                self._buffer.poll_once()
        return self

    def close(self) -> None:
        """Commits finished messages and leaves the consumer group. Messages that are not finished are redelivered."""
        self._is_closing = True
        with self._busy:
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with add_note_to(error):
            self.close()


class Subscription(Loop[CommitPolicy]):
    """An iterator over messages. A message is finished when the next one is requested, or by message.done().

    for message in mq.subscribe("orders", group="billing"):
        print(message.json())
    """

    def batches(self, most: int = 100) -> Iterator[list[Message]]:
        """Yields lists of 1 to `most` messages, as they arrive. Requesting the next list finishes the previous list.

        for batch in mq.subscribe("orders", group="billing").batches(1000):
            database.insert_many([message.json() for message in batch])
        """
        check_positive("most", most)
        while taken := self._next(most):
            yield taken


class ExactlyOnce(Loop[TransactionalCommits]):
    """An iterator over messages; what the loop publishes is delivered exactly once. See mq.exactly_once.

    with mq.exactly_once("orders", group="billing") as loop:
        for message in loop:
            loop.publish("invoices", invoice(message.json()), key=message.key)
    """

    @property
    def transactions(self) -> int:
        """The number of transactions that this loop has committed.

        with mq.exactly_once("in", group="g", limit=10) as loop: ...
        print(loop.transactions)
        """
        return self._buffer.commits.committed

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
        """Publishes a message in the transaction of the current message. Does not wait for its delivery.

        loop.publish("invoices", {"order": message.json()["id"]}, key=message.key)
        """
        message = Outgoing(value, key=key, headers=headers, tag=tag, partition=partition, timestamp=timestamp)
        self._send(encode(topic, message))

    def _send(self, message: Encoded) -> None:
        if self._is_closing:
            raise Closed("the loop has ended; publish within it")
        self._buffer.commits.publish(message)

"""Exactly once: read, transform, publish. What was read is committed in the transaction of what was published.

    with mq.exactly_once("orders", group="billing") as loop:
        for message in loop:
            loop.publish("invoices", invoice(message.json()), key=message.key)

If anything goes wrong, nothing of the batch counts, and its messages come again.
"""

import logging
from collections.abc import Callable, Collection
from typing import Any, Protocol

from penstock.api.core.commits import NEVER_S, NoCommits
from penstock.api.core.encoding import Encoded
from penstock.api.core.message import Message
from penstock.api.core.progress import Offsets, Progress
from penstock.api.errors import ApiError, TransactionAborted
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicPartition

log = logging.getLogger("penstock.api")


class Ledger(Protocol):
    """Where transactions are written: a Writer."""

    is_broken: bool

    @property
    def failure(self) -> ApiError | None: ...

    def begin(self) -> None: ...

    def send(self, message: Encoded, *, is_waiting: bool = True) -> None: ...

    def commit(self, offsets: Offsets | None = None, group: Any = None) -> None: ...

    def abort(self) -> None: ...


class CommitsWithin(NoCommits):
    """Commits what is finished within the transaction of what it gave rise to, a batch at a time."""

    def __init__(
        self,
        writer: Ledger,
        group_metadata: Callable[[], Any],
        progress: Progress,
        *,
        batch: int,
        batch_s: float,
        clock: Clock,
    ) -> None:
        self._writer = writer
        self._group_metadata = group_metadata
        self._progress = progress
        self._batch = batch
        self._batch_s = batch_s
        self._clock = clock
        self._handed: list[Message] = []
        self._until_s = NEVER_S
        self._is_begun = False
        self._is_spoiled = False
        self._is_dead = False
        self._published_for_last = 0
        self.committed = 0
        """Transactions that counted."""

    # -- the batch

    def publish(self, message: Encoded, *, is_waiting: bool = True) -> None:
        """Within the transaction of the message that is in hand. BufferError, if not to wait: no room now."""
        failure = self._writer.failure
        if failure is not None:
            self._is_dead = True
            raise failure  # it would fail again however often the batch is read
        self._begin()
        try:
            self._writer.send(message, is_waiting=is_waiting)
        except TransactionAborted as error:
            # The batch is aborted when the loop asks for the next message: nothing more of it need be published.
            if not self._is_spoiled:
                log.warning("transaction_aborted hint='its messages come again' reason=%r", str(error))
            self._is_spoiled = True
        except ApiError:
            self._is_dead = self._writer.failure is not None
            raise
        self._published_for_last += 1

    def handed(self, message: Message | None) -> None:
        if self._until_s == NEVER_S:
            self._until_s = self._clock.monotonic_s() + self._batch_s
        if message is not None:
            self._handed.append(message)
            self._published_for_last = 0

    def _begin(self) -> None:
        if not self._is_begun:
            self._writer.begin()
            self._is_begun = True

    def wait_s(self) -> float:
        if self._is_spoiled or len(self._handed) >= self._batch:
            return 0.0
        return max(0.0, self._until_s - self._clock.monotonic_s())

    def work(self) -> list[Message]:
        return self._end_batch() if self.wait_s() == 0 else []

    def retry(self, message: Message) -> bool:
        self._is_spoiled = True
        return True

    # -- its end

    def _end_batch(self) -> list[Message]:
        """Commit. If that cannot be, nothing counts, and what was handed over comes again."""
        if self._is_spoiled or self._is_dead:
            return self._give_up()
        with self._progress.lock:
            offsets = self._progress.due()
        if not offsets and not self._is_begun:
            self._reset()
            return []
        self._begin()
        self._is_begun, self._is_dead = False, True  # unless we come back from here, nothing more is committed
        try:
            self._writer.commit(offsets, self._group_metadata())
        except TransactionAborted as error:
            log.warning("transaction_aborted hint='its messages come again' reason=%r", str(error))
            self._is_dead = False
            return self._reset()
        self._is_dead = False
        with self._progress.lock:
            self._progress.ask(offsets)
            for place, offset in offsets.items():
                self._progress.settle(place, offset, True)
        self.committed += 1
        self._reset()
        return []

    def _give_up(self) -> list[Message]:
        if self._is_begun:
            self._writer.abort()
            self._is_begun = False
        return self._reset()

    def _reset(self) -> list[Message]:
        handed, self._handed = self._handed, []
        self._until_s = NEVER_S
        self._is_spoiled = False
        return handed

    def revoked(self, places: Collection[TopicPartition], unread: Offsets) -> list[Message]:
        # Everything that was handed over is finished: a rebalance comes while the loop asks for more.
        return self._end_batch()

    def lost(self, places: Collection[TopicPartition]) -> list[Message]:
        return self._give_up()

    def conclude(self) -> list[Message]:
        return self._end_batch()

    def close(self, unread: Offsets) -> None:
        """What is finished counts, unless the message in hand has published something already."""
        if self._writer.is_broken:
            return
        with self._progress.lock:
            is_clean = not self._progress.unfinished or not self._published_for_last
        if is_clean and not self._is_dead:
            self._end_batch()
        else:
            self._give_up()

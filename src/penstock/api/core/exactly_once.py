"""Exactly-once commits: one transaction commits the offsets of a batch and the messages published for it.

    with mq.exactly_once("orders", group="billing") as loop:
        for message in loop:
            loop.publish("invoices", invoice(message.json()), key=message.key)

If anything fails, the transaction is aborted and the messages of the batch are delivered again.
"""

import logging
from collections.abc import Callable, Collection
from typing import Any

from penstock.api.core.commits import NEVER_S, CommitPolicy
from penstock.api.core.encoding import Encoded
from penstock.api.core.message import Message
from penstock.api.core.position_tracker import Offsets, PositionTracker
from penstock.api.core.transactional_producer import TransactionalProducer
from penstock.api.errors import ApiError, TransactionAborted
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicPartition

log = logging.getLogger("penstock.api")


class TransactionalCommits(CommitPolicy):
    """Exactly-once commit policy: one transaction per batch commits its offsets and the messages published for it."""

    def __init__(
        self,
        producer: TransactionalProducer,
        group_metadata: Callable[[], Any],
        tracker: PositionTracker,
        *,
        batch: int,
        batch_s: float,
        clock: Clock,
    ) -> None:
        self._producer = producer
        self._group_metadata = group_metadata
        self._tracker = tracker
        self._batch = batch
        self._batch_s = batch_s
        self._clock = clock
        self._delivered: list[Message] = []
        self._batch_end_s = NEVER_S
        self._is_open = False
        self._must_abort = False
        self._is_failed = False
        self._published_for_last = 0
        self.committed = 0
        """Number of transactions committed so far."""

    # -- the current batch

    def publish(self, message: Encoded, *, is_waiting: bool = True) -> None:
        """Publishes in the batch's transaction. Raises BufferError if that would block and `is_waiting` is False."""
        failure = self._producer.failure
        if failure is not None:
            self._is_failed = True
            raise failure  # permanent: a redelivered batch would fail again
        self._begin()
        try:
            self._producer.send(message, is_waiting=is_waiting)
        except TransactionAborted as error:
            # The transaction is aborted when the loop requests the next message: further results can be dropped.
            if not self._must_abort:
                log.warning("transaction_aborted hint='its messages are delivered again' reason=%r", str(error))
            self._must_abort = True
        except ApiError:
            self._is_failed = self._producer.failure is not None
            raise
        self._published_for_last += 1

    def on_delivered(self, message: Message | None) -> None:
        if self._batch_end_s == NEVER_S:
            self._batch_end_s = self._clock.monotonic_s() + self._batch_s
        if message is not None:
            self._delivered.append(message)
            self._published_for_last = 0

    def _begin(self) -> None:
        if not self._is_open:
            self._producer.begin()
            self._is_open = True

    def wait_s(self) -> float:
        if self._must_abort or len(self._delivered) >= self._batch:
            return 0.0
        return max(0.0, self._batch_end_s - self._clock.monotonic_s())

    def commit_due(self) -> list[Message]:
        return self._commit_batch() if self.wait_s() == 0 else []

    def retry(self, message: Message) -> bool:
        self._must_abort = True
        return True

    # -- commit and abort

    def _commit_batch(self) -> list[Message]:
        """Commits the transaction. Returns the messages to redeliver if it was aborted, else an empty list."""
        if self._must_abort or self._is_failed:
            return self._abort()
        with self._tracker.lock:
            offsets = self._tracker.due()
        if not offsets and not self._is_open:
            self._reset()
            return []
        self._begin()
        self._is_open, self._is_failed = False, True  # stays failed if the commit raises
        try:
            self._producer.commit(offsets, self._group_metadata())
        except TransactionAborted as error:
            log.warning("transaction_aborted hint='its messages are delivered again' reason=%r", str(error))
            self._is_failed = False
            return self._reset()
        self._is_failed = False
        with self._tracker.lock:
            self._tracker.mark_requested(offsets)
            for tp, offset in offsets.items():
                self._tracker.record_commit(tp, offset, True)
        self.committed += 1
        self._reset()
        return []

    def _abort(self) -> list[Message]:
        if self._is_open:
            self._producer.abort()
            self._is_open = False
        return self._reset()

    def _reset(self) -> list[Message]:
        delivered, self._delivered = self._delivered, []
        self._batch_end_s = NEVER_S
        self._must_abort = False
        return delivered

    def on_revoked(self, tps: Collection[TopicPartition], undelivered: Offsets) -> list[Message]:
        # All delivered messages are finished: a rebalance happens while the loop requests more.
        return self._commit_batch()

    def on_lost(self, tps: Collection[TopicPartition]) -> list[Message]:
        return self._abort()

    def commit_all(self) -> list[Message]:
        return self._commit_batch()

    def close(self, undelivered: Offsets) -> None:
        """Commits the open transaction. Aborts it if it has failed, or if messages were published for a message
        that is not finished. `undelivered` is not used."""
        if self._producer.is_broken:
            return
        with self._tracker.lock:
            is_clean = not self._tracker.unfinished or not self._published_for_last
        if is_clean and not self._is_failed:
            self._commit_batch()
        else:
            self._abort()

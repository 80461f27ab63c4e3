"""Offset commit policies: at-least-once (after processing), at-most-once (before delivery), none."""

import logging
from collections.abc import Collection
from typing import Final

from penstock.api.core.message import Message
from penstock.api.core.position_tracker import Offsets, PositionTracker
from penstock.api.core.subscription_consumer import SubscriptionConsumer
from penstock.api.errors import InvalidArgument
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicPartition

NEVER_S: Final = float("inf")

log = logging.getLogger("penstock.api")


class CommitPolicy:
    """Decides when offsets are committed. The caller must redeliver messages that a method returns: their transaction
    was aborted.

    This base class commits nothing: it is the policy of a subscription without a consumer group.
    """

    def before_delivery(self, arrived: Collection[Message]) -> bool:
        """Called with messages that were fetched. Returns whether they may be delivered now."""
        return True

    def on_delivered(self, message: Message | None) -> None:
        """Called when a message was delivered; with None, when a message was skipped."""

    def wait_s(self) -> float:
        """Returns the seconds until `commit_due` must be called."""
        return NEVER_S

    def commit_due(self) -> list[Message]:
        """Commits offsets if a commit is due. Returns messages to redeliver if their transaction was aborted."""
        return []

    def retry(self, message: Message) -> bool:
        """Called when a message is to be retried. Returns True if `commit_due` will return it for redelivery,
        because its transaction is aborted; False if the caller must redeliver it."""
        return False

    def on_revoked(self, tps: Collection[TopicPartition], undelivered: Offsets) -> list[Message]:
        """Called before partitions are revoked; may commit. Returns messages to redeliver. `undelivered`: the
        first undelivered offset of each partition."""
        return []

    def on_lost(self, tps: Collection[TopicPartition]) -> list[Message]:
        """Called when other members already own the partitions, too late to commit. Returns messages to redeliver."""
        return []

    def commit_all(self) -> list[Message]:
        """Commits all finished messages and waits. Returns messages to redeliver if their transaction was aborted."""
        return []

    def close(self, undelivered: Offsets) -> None:
        """Commits finished messages. With at-most-once, commits `undelivered` instead: the offset of the first
        undelivered message, for each partition that has one."""


class AtLeastOnceCommits(CommitPolicy):
    """At-least-once commit policy: commits finished messages periodically, and when partitions are revoked."""

    def __init__(
        self, consumer: SubscriptionConsumer, tracker: PositionTracker, interval_s: float, clock: Clock
    ) -> None:
        self._consumer = consumer
        self._tracker = tracker
        self._interval_s = interval_s
        self._clock = clock
        self._next_s = NEVER_S

    def on_delivered(self, message: Message | None) -> None:
        if self._next_s == NEVER_S:
            self._next_s = self._clock.monotonic_s() + self._interval_s

    def wait_s(self) -> float:
        return max(0.0, self._next_s - self._clock.monotonic_s())

    def commit_due(self) -> list[Message]:
        if self.wait_s() == 0:
            with self._tracker.lock:
                offsets = self._tracker.due()
                self._tracker.mark_requested(offsets)
            if offsets:
                self._consumer.commit(offsets)
            # Even without a delivery until then: messages may be finished, or a commit may have failed.
            self._next_s = self._clock.monotonic_s() + self._interval_s
        return []

    def on_revoked(self, tps: Collection[TopicPartition], undelivered: Offsets) -> list[Message]:
        self._commit_now(tps)
        return []

    def commit_all(self) -> list[Message]:
        self._commit_now(None)
        return []

    def close(self, undelivered: Offsets) -> None:
        self.commit_all()

    def _commit_now(self, tps: Collection[TopicPartition] | None) -> None:
        with self._tracker.lock:
            offsets = self._tracker.due(tps, even_if_requested=True)
            self._tracker.mark_requested(offsets)
        if not offsets:
            return
        failed = self._consumer.commit_now(offsets)
        with self._tracker.lock:
            for tp, offset in offsets.items():
                self._tracker.record_commit(tp, offset, tp not in failed)
        for tp, error in failed.items():
            log.warning("commit_failed partition=%s hint='messages are delivered again' reason=%r", tp, str(error))


class AtMostOnceCommits(CommitPolicy):
    """At-most-once commit policy: commits messages before they are delivered."""

    def __init__(self, consumer: SubscriptionConsumer) -> None:
        self._consumer = consumer

    def before_delivery(self, arrived: Collection[Message]) -> bool:
        ends = {TopicPartition(message.topic, message.partition): message.offset + 1 for message in arrived}
        failed = self._consumer.commit_now(ends)
        for tp, error in failed.items():
            log.warning("commit_failed partition=%s hint='will be retried' reason=%r", tp, str(error))
        return not failed

    def retry(self, message: Message) -> bool:
        raise InvalidArgument(
            "with at-most-once a message is committed before its delivery, and cannot be retried; "
            "subscribe with delivery='at-least-once' to use retry()"
        )

    def on_revoked(self, tps: Collection[TopicPartition], undelivered: Offsets) -> list[Message]:
        self._rewind({tp: offset for tp, offset in undelivered.items() if tp in tps})
        return []

    def close(self, undelivered: Offsets) -> None:
        self._rewind(undelivered)

    def _rewind(self, undelivered: Offsets) -> None:
        """Commits the first undelivered offsets, so that the next member receives the undelivered messages."""
        if undelivered:
            failed = self._consumer.commit_now(undelivered)
            for tp, error in failed.items():
                log.warning("messages_dropped partition=%s from_offset=%d reason=%r", tp, undelivered[tp], str(error))

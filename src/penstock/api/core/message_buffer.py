"""Message buffer between the Kafka consumer and the loop of a subscription: delivery, finish, retry, redelivery.

The loops in sync/subscription.py and aio/subscription.py use it. `take` and `finish` only update memory (and the
store of handled ids); `catch_up` and `wait` send requests and block.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

from confluent_kafka import Message as Arrived

from penstock.api.core.commits import CommitPolicy
from penstock.api.core.handled import HandledFilter, MessageId
from penstock.api.core.loop_options import LoopOptions
from penstock.api.core.message import Message
from penstock.api.core.position_tracker import PartitionPosition, PositionTracker
from penstock.api.core.settings import Settings
from penstock.api.core.subscription_consumer import SubscriptionConsumer
from penstock.api.errors import Closed, InvalidArgument, NotConnected
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition

STEP_S: Final = 0.5
"""Maximum duration, in seconds, of one poll for messages."""
JOINING_S: Final = 0.05
"""Maximum seconds of one poll while no partitions are assigned; short, because an assignment does not end a poll."""
REDELIVERY_DELAY_S: Final = 0.2
"""Seconds before messages are delivered again after an aborted transaction or a failed at-most-once commit."""

Commits = TypeVar("Commits", bound=CommitPolicy)
DeliveryKey = tuple[PartitionPosition, int]
"""Key of a message in flight: the PartitionPosition of its partition, and its offset."""


class MessageBuffer(Generic[Commits]):
    """The buffered and delivered messages of a subscription. Not thread-safe, except for `finish` and `retry`."""

    def __init__(
        self,
        settings: Settings,
        loop_options: LoopOptions,
        tracker: PositionTracker,
        handled_filter: HandledFilter | None,
        clock: Clock,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        """`pause` waits for a message to be finished or retried; returns False if the given seconds pass before."""
        self._settings = settings
        self._loop_options = loop_options
        self._tracker = tracker
        self._handled_filter = handled_filter
        self._clock = clock
        self._consumer: SubscriptionConsumer
        self.commits: Commits
        self._arrived: deque[Message] = deque()  # not released for delivery yet
        self._ready: deque[Message] = deque()
        self._retries: list[tuple[float, int, Message]] = []  # by when they are due
        self._retry_numbers = count()
        self._in_flight: dict[DeliveryKey, MessageId | None] = {}
        self._ids: set[MessageId] = set()
        self._delivered: list[Message] = []
        self._limit_left = loop_options.limit
        self._not_before_s = float("-inf")
        self._began_s = self._active_s = clock.monotonic_s()
        self._was_joined = False
        self._is_closed = False
        self._changed = threading.Condition(tracker.lock)
        self._pause = pause or self._changed.wait

    def begin(
        self, consumer: SubscriptionConsumer, commits: Commits, on_close: Callable[[], None] = lambda: None
    ) -> None:
        """Sets the consumer and the commit policy; call it before the first `take`. `close` calls `on_close`."""
        self._consumer = consumer
        self.commits = commits
        self._on_close = on_close

    # -- delivery

    def finish_delivered(self) -> None:
        """Finishes the messages of the last `take`, unless max_in_flight is above 1; called before each `take`."""
        delivered, self._delivered = self._delivered, []
        if self._loop_options.is_sequential:
            for message in delivered:
                self.finish(message)

    def take(self, most: int = 1) -> list[Message]:
        """Returns up to `most` messages to deliver; an empty list if no message is ready."""
        taken: list[Message] = []
        while len(taken) < most:
            message = self._pop()
            if message is None or not self._deliver(message, taken):
                break
        self._delivered = taken
        return taken

    def _pop(self) -> Message | None:
        now_s = self._clock.monotonic_s()
        with self._changed:
            if now_s < self._not_before_s:
                return None
            if self._retries and self._retries[0][0] <= now_s:
                return heappop(self._retries)[2]
            if not self._ready or self._is_full or (self._retries and self._loop_options.is_sequential):
                return None
            if self._limit_left == 0 and self._ready[0].attempt == 1:
                return None
            return self._ready.popleft()

    @property
    def _is_full(self) -> bool:
        return (
            not self._loop_options.is_sequential
            and len(self._in_flight) + len(self._retries) >= self._loop_options.max_in_flight
        )

    def _deliver(self, message: Message, taken: list[Message]) -> bool:
        """Adds a message to `taken`; skips it if its tag is not wanted or its idempotent_by id is marked as
        handled. Returns False, and keeps it in the buffer, while a message with the same id is in flight."""
        position = message._position
        assert position is not None
        if not self._is_wanted(message):
            self._skip(position, message)
            return True
        id = None
        if self._handled_filter is not None:
            id = self._handled_filter.id(message)
            if id in self._ids:
                # A message with the same id is in flight; wait for its outcome.
                with self._changed:
                    self._ready.appendleft(message)
                return False
            if self._handled_filter.seen(id):
                self._skip(position, message)
                return True
        with self._changed:
            self._in_flight[position, message.offset] = id
            if id is not None:
                self._ids.add(id)
            position.deliver(message.offset)
            if self._limit_left is not None and message.attempt == 1:
                self._limit_left -= 1
        self.commits.on_delivered(message)
        taken.append(message)
        return True

    def _is_wanted(self, message: Message) -> bool:
        return self._loop_options.tags is None or message.tag in self._loop_options.tags

    def _skip(self, position: PartitionPosition, message: Message) -> None:
        with self._changed:
            position.finish(message.offset)  # it may have been delivered before
            position.skip(message.offset)
        self.commits.on_delivered(None)

    # -- message.done() and message.retry()

    def finish(self, message: Message) -> None:
        """Marks a message as finished. Does nothing if the message is already finished or retried."""
        assert message._position is not None
        key = message._position, message.offset
        with self._changed:
            if key not in self._in_flight:
                return
            if self._is_closed:
                raise Closed("the subscription was closed before this message was finished: it is delivered again")
            id = self._in_flight.pop(key)
        if id is not None and self._handled_filter is not None:
            # Marked before its offset may be committed: after a crash in between it is skipped, not done twice.
            self._handled_filter.mark(id)
        with self._changed:
            if id is not None:
                self._ids.discard(id)
            message._position.finish(message.offset)
            self._active_s = self._clock.monotonic_s()
            self._changed.notify_all()

    def retry(self, message: Message, delay_s: float) -> None:
        """Schedules the redelivery of a message after `delay_s`."""
        if delay_s < 0:
            raise InvalidArgument(f"delay_s={delay_s} is negative; give 0 or more")
        due_s = self._clock.monotonic_s() + delay_s
        assert message._position is not None
        key = message._position, message.offset
        with self._changed:
            if key not in self._in_flight:
                raise InvalidArgument("this message is finished, or was retried before: it cannot be retried again")
            is_in_batch = self.commits.retry(message)
            id = self._in_flight.pop(key)
            if id is not None:
                self._ids.discard(id)
            if is_in_batch:
                self._not_before_s = max(self._not_before_s, due_s)
            elif message._position.is_assigned:
                again = replace(message, attempt=message.attempt + 1)
                heappush(self._retries, (due_s, next(self._retry_numbers), again))
            else:
                self._restore_limit(1)
            self._changed.notify_all()

    # -- requests to the cluster

    def is_due(self) -> bool:
        """Returns whether `catch_up` must be called before the next message is taken."""
        return self.commits.wait_s() <= 0 or bool(self._arrived) or self._consumer.is_overdue

    def catch_up(self) -> None:
        """Commits offsets that are due, and polls if max.poll.interval.ms may have passed since the last poll."""
        if self._consumer.is_overdue:
            self._add_polled(self._consumer.poll(0))
        self._redeliver(self.commits.commit_due())
        self._make_ready()

    def wait(self) -> bool:
        """Returns True if the loop has ended; else polls once for messages, for up to STEP_S, and returns False."""
        if self.is_over():
            return True
        self.poll_once()
        return False

    def poll_once(self) -> None:
        self.catch_up()
        wait_s = self._wait_s()
        with self._changed:
            is_stalled = bool(self._ready or self._retries or self._arrived)
            if is_stalled and self._pause(wait_s):
                return
        self._add_polled(self._consumer.poll_paused() if is_stalled else self._consumer.poll(wait_s))

    def _wait_s(self) -> float:
        now_s = self._clock.monotonic_s()
        wait_s = min(STEP_S if self._consumer.is_joined else JOINING_S, self.commits.wait_s())
        if self._loop_options.idle_timeout_s is not None and self._was_joined and self._consumer.is_at_end:
            wait_s = min(wait_s, self._active_s + self._loop_options.idle_timeout_s - now_s)
        if self._not_before_s > now_s:
            wait_s = min(wait_s, self._not_before_s - now_s)
        with self._changed:
            if self._retries:
                wait_s = min(wait_s, self._retries[0][0] - now_s)
        return max(0.0, wait_s)

    def _add_polled(self, arrived: list[Arrived]) -> None:
        for each in arrived:
            position = self._tracker.position(TopicPartition(each.topic() or "", each.partition() or 0))
            if position is not None:  # else it was revoked meanwhile
                self._arrived.append(self._message(each, position))
        self._make_ready()

    def _message(self, arrived: Arrived, position: PartitionPosition) -> Message:
        return Message(
            topic=position.tp.topic,
            partition=position.tp.partition,
            offset=arrived.offset() or 0,
            timestamp_ms=arrived.timestamp()[1],
            key=arrived.key(),
            value=arrived.value(),
            headers=tuple(arrived.headers() or ()),  # type: ignore[arg-type]  # what arrives is bytes or None
            _position=position,
            _source=self,
        )

    def _make_ready(self) -> None:
        now_s = self._clock.monotonic_s()
        if not self._arrived or now_s < self._not_before_s:
            return
        if self.commits.before_delivery(self._arrived):
            with self._changed:
                self._ready.extend(self._arrived)
                self._arrived.clear()
        else:
            self._not_before_s = now_s + REDELIVERY_DELAY_S

    def _redeliver(self, messages: list[Message]) -> None:
        """Puts messages of an aborted transaction at the front of the buffer, in order, for redelivery."""
        if not messages:
            return
        self._not_before_s = max(self._not_before_s, self._clock.monotonic_s() + REDELIVERY_DELAY_S)
        with self._changed:
            self._delivered = []
            self._in_flight.clear()
            self._ids.clear()
            self._tracker.rewind()
            for message in reversed(messages):
                if _is_assigned(message):
                    self._ready.appendleft(replace(message, attempt=message.attempt + 1))
                else:
                    self._restore_limit(1)

    # -- partitions: called by the consumer during `wait` and `close`

    def on_assigned(self, tps: Collection[TopicPartition]) -> None:
        with self._changed:
            self._tracker.assign(tps)

    def on_revoked(self, tps: Collection[TopicPartition]) -> None:
        # After close, everything that may be committed is committed.
        self._drop_partitions(tps, [] if self._is_closed else self.commits.on_revoked(tps, self._undelivered()))

    def on_lost(self, tps: Collection[TopicPartition]) -> None:
        self._drop_partitions(tps, [] if self._is_closed else self.commits.on_lost(tps))

    def on_commit_result(self, tp: TopicPartition, offset: int, is_committed: bool) -> None:
        with self._changed:
            self._tracker.record_commit(tp, offset, is_committed)

    def _drop_partitions(self, tps: Collection[TopicPartition], redelivered: list[Message]) -> None:
        with self._changed:
            self._tracker.unassign(tps)
            self._restore_limit(sum(message.attempt > 1 and not _is_assigned(message) for message in self._ready))
            self._ready = deque(message for message in self._ready if _is_assigned(message))
            self._arrived = deque(message for message in self._arrived if _is_assigned(message))
            self._restore_limit(sum(not _is_assigned(entry[2]) for entry in self._retries))
            self._retries = [entry for entry in self._retries if _is_assigned(entry[2])]
            heapify(self._retries)
        self._redeliver(redelivered)

    def _restore_limit(self, messages: int) -> None:
        """Increases the remaining `limit` by `messages`: unfinished messages of lost partitions do not count."""
        if self._limit_left is not None:
            self._limit_left += messages

    def _undelivered(self) -> dict[TopicPartition, int]:
        """Returns the first undelivered offset of each partition with buffered messages."""
        undelivered: dict[TopicPartition, int] = {}
        with self._changed:
            for message in self._ready:
                undelivered.setdefault(TopicPartition(message.topic, message.partition), message.offset)
        return undelivered

    # -- end of the loop

    @property
    def may_block(self) -> bool:
        """Whether taking and finishing messages may block, because a store of handled ids is used."""
        return self._handled_filter is not None

    def is_over(self) -> bool:
        """Returns True if `limit` or `idle_timeout_s` is reached and the finished messages have been committed."""
        if not self._is_finished():
            return False
        redelivered = self.commits.commit_all()
        self._redeliver(redelivered)
        return not redelivered

    def _is_finished(self) -> bool:
        with self._changed:
            if self._in_flight or self._retries or (self._ready and self._ready[0].attempt > 1):
                return False
            if self._limit_left == 0:
                return True
            if self._ready or self._arrived:
                return False
        idle_s = self._loop_options.idle_timeout_s
        if idle_s is None:
            return False
        now_s = self._clock.monotonic_s()
        if self._consumer.is_joined and not self._was_joined:
            self._was_joined = True
            self._active_s = now_s  # the idle time begins with the first assignment
        patient_s = max(idle_s, self._settings.timeout_s)
        if self._was_joined:
            # Not at the end, and no message arrives: the cluster is slow, and the loop is not idle.
            return now_s - self._active_s >= (idle_s if self._consumer.is_at_end else patient_s)
        if now_s - self._began_s >= patient_s:
            raise not_joined(now_s - self._began_s)
        return False

    @property
    def is_joined(self) -> bool:
        return self._consumer.is_joined

    def close(self) -> None:
        """Commits finished messages, and leaves the consumer group."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
        with ExitStack() as stack:  # closes all, even if one fails
            stack.callback(self._on_close)
            if self._handled_filter is not None:
                stack.callback(self._handled_filter.close)
            stack.callback(self._consumer.close)
            self.commits.close(self._undelivered())


def not_joined(waited_s: float) -> NotConnected:
    return NotConnected(
        f"no partitions were assigned in {waited_s:.0f} s: the cluster does not answer, or the group's members do "
        "not; see `penstock group describe`, or give a longer timeout_s",
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )


def _is_assigned(message: Message) -> bool:
    return message._position is not None and message._position.is_assigned

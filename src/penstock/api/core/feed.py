"""Between a consumer and a loop: messages wait here, are handed over, and are finished.

A Feed does not know whether its user is a thread or a task. `take` and `finish` only keep the books; `catch_up` and
`wait` talk to the cluster, and take their time. The loops in sync/subscription.py and aio/subscription.py use them.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

from confluent_kafka import Message as Arrived

from penstock.api.core.commits import Commits
from penstock.api.core.handled import Handling, MessageId
from penstock.api.core.loop_options import LoopOptions
from penstock.api.core.message import Message
from penstock.api.core.progress import Progress, Track
from penstock.api.core.settings import Settings
from penstock.api.errors import Closed, InvalidArgument, NotConnected
from penstock.foundation.clock import Clock
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition

STEP_S: Final = 0.5
"""The longest that one step of waiting takes."""
JOINING_S: Final = 0.05
"""The same, while it is not known which partitions are ours: a poll does not end when that is decided."""
AGAIN_S: Final = 0.2
"""How long to wait before messages of a failed transaction come again: the cluster may need it."""

Key = tuple[Track, int]
"""A message in somebody's hands: its partition, while that was ours, and its offset."""


class Source(Protocol):
    """Where messages come from: an Intake."""

    is_joined: bool

    @property
    def is_at_end(self) -> bool: ...

    @property
    def is_overdue(self) -> bool: ...

    def poll(self, wait_s: float) -> list[Arrived]: ...

    def breathe(self) -> list[Arrived]: ...

    def close(self) -> None: ...


class Feed:
    """See the top of this file. One thread at a time uses it; any thread may `finish` and `retry`."""

    def __init__(
        self,
        settings: Settings,
        loop_options: LoopOptions,
        progress: Progress,
        handling: Handling | None,
        clock: Clock,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        """`pause` waits until something is finished, at most so many seconds: whether something was."""
        self._settings = settings
        self._loop_options = loop_options
        self._progress = progress
        self._handling = handling
        self._clock = clock
        self._intake: Source
        self._commits: Commits
        self._arrived: deque[Message] = deque()  # not cleared to be handed over yet
        self._ready: deque[Message] = deque()
        self._again: list[tuple[float, int, Message]] = []  # by when they are due
        self._again_number = count()
        self._open: dict[Key, MessageId | None] = {}
        self._ids: set[MessageId] = set()
        self._in_hand: list[Message] = []
        self._left = loop_options.limit
        self._not_before_s = float("-inf")
        self._began_s = self._active_s = clock.monotonic_s()
        self._was_joined = False
        self._is_closed = False
        self._changed = threading.Condition(progress.lock)
        self._pause = pause or self._changed.wait

    def begin(self, intake: Source, commits: Commits) -> None:
        """Both ends are there. The intake may have told us of partitions already: it listens to nobody else."""
        self._intake = intake
        self._commits = commits

    # -- handing over

    def finish_in_hand(self) -> None:
        """The loop asks for more: what it has is finished."""
        in_hand, self._in_hand = self._in_hand, []
        if self._loop_options.is_in_order:
            for message in in_hand:
                self.finish(message)

    def take(self, most: int = 1) -> list[Message]:
        """The next messages to hand over, if there are any."""
        taken: list[Message] = []
        while len(taken) < most:
            message = self._pop()
            if message is None or not self._hand_over(message, taken):
                break
        self._in_hand = taken
        return taken

    def _pop(self) -> Message | None:
        now_s = self._clock.monotonic_s()
        with self._changed:
            if now_s < self._not_before_s:
                return None
            if self._again and self._again[0][0] <= now_s:
                return heappop(self._again)[2]
            if not self._ready or self._is_full or (self._again and self._loop_options.is_in_order):
                return None
            if self._left == 0 and self._ready[0].attempt == 1:
                return None
            return self._ready.popleft()

    @property
    def _is_full(self) -> bool:
        return (
            not self._loop_options.is_in_order
            and len(self._open) + len(self._again) >= self._loop_options.max_in_flight
        )

    def _hand_over(self, message: Message, taken: list[Message]) -> bool:
        """Hand over this message, or pass over it. False: it has to wait, and so do those after it."""
        track = message._track
        assert track is not None
        if not self._is_wanted(message):
            self._pass_over(track, message)
            return True
        id = None
        if self._handling is not None:
            id = self._handling.id(message)
            if id in self._ids:
                # The same one is being handled right now; what becomes of that decides.
                with self._changed:
                    self._ready.appendleft(message)
                return False
            if self._handling.seen(id):
                self._pass_over(track, message)
                return True
        with self._changed:
            self._open[track, message.offset] = id
            if id is not None:
                self._ids.add(id)
            track.hand_over(message.offset)
            if self._left is not None and message.attempt == 1:
                self._left -= 1
        self._commits.handed(message)
        taken.append(message)
        return True

    def _is_wanted(self, message: Message) -> bool:
        return self._loop_options.tags is None or message.tag in self._loop_options.tags

    def _pass_over(self, track: Track, message: Message) -> None:
        with self._changed:
            track.finish(message.offset)  # it may have been handed over before, elsewhere
            track.skip(message.offset)
        self._commits.handed(None)

    # -- giving back: these two are what message.done() and message.retry() call

    def finish(self, message: Message) -> None:
        """A message is finished. Nothing, if it was finished or given back before."""
        assert message._track is not None
        key = message._track, message.offset
        with self._changed:
            if key not in self._open:
                return
            if self._is_closed:
                raise Closed("the subscription was closed before this message was finished: it will come again")
            id = self._open.pop(key)
        if id is not None and self._handling is not None:
            # Before its offset counts: after a crash in between it is passed over, not done twice.
            self._handling.mark(id)
        with self._changed:
            if id is not None:
                self._ids.discard(id)
            message._track.finish(message.offset)
            self._active_s = self._clock.monotonic_s()
            self._changed.notify_all()

    def retry(self, message: Message, delay_s: float) -> None:
        """A message is to be handed over again."""
        if delay_s < 0:
            raise InvalidArgument(f"delay_s={delay_s} lies in the past; give 0 or more")
        due_s = self._clock.monotonic_s() + delay_s
        assert message._track is not None
        key = message._track, message.offset
        with self._changed:
            if key not in self._open:
                raise InvalidArgument("this message is finished, or was given back before: it cannot be retried")
        is_in_batch = self._commits.retry(message)
        with self._changed:
            id = self._open.pop(key)
            if id is not None:
                self._ids.discard(id)
            if is_in_batch:
                self._not_before_s = max(self._not_before_s, due_s)
            elif message._track.is_ours:
                again = replace(message, attempt=message.attempt + 1)
                heappush(self._again, (due_s, next(self._again_number), again))
            self._changed.notify_all()

    # -- talking to the cluster

    def is_due(self) -> bool:
        """Whether to `catch_up` before the next message is taken."""
        return self._commits.wait_s() <= 0 or bool(self._arrived) or self._intake.is_overdue

    def catch_up(self) -> None:
        """Commit what is due, and hear what has happened if we were busy for too long."""
        if self._intake.is_overdue:
            self._take_in(self._intake.poll(0))
        self._put_back(self._commits.work())
        self._clear()

    def wait(self) -> bool:
        """There is nothing to take: wait for a while for that to change. True, if the loop is over instead."""
        if self.is_over():
            return True
        self.work()
        return False

    def work(self) -> None:
        self.catch_up()
        wait_s = self._wait_s()
        with self._changed:
            is_stalled = bool(self._ready or self._again or self._arrived)
            if is_stalled and self._pause(wait_s):
                return
        self._take_in(self._intake.breathe() if is_stalled else self._intake.poll(wait_s))

    def _wait_s(self) -> float:
        now_s = self._clock.monotonic_s()
        wait_s = min(STEP_S if self._intake.is_joined else JOINING_S, self._commits.wait_s())
        if self._loop_options.idle_timeout_s is not None and self._was_joined and self._intake.is_at_end:
            wait_s = min(wait_s, self._active_s + self._loop_options.idle_timeout_s - now_s)
        if self._not_before_s > now_s:
            wait_s = min(wait_s, self._not_before_s - now_s)
        with self._changed:
            if self._again:
                wait_s = min(wait_s, self._again[0][0] - now_s)
        return max(0.0, wait_s)

    def _take_in(self, arrived: list[Arrived]) -> None:
        for each in arrived:
            track = self._progress.track(TopicPartition(each.topic() or "", each.partition() or 0))
            if track is not None:  # else it went while this was on its way
                self._arrived.append(self._message(each, track))
        self._clear()

    def _message(self, arrived: Arrived, track: Track) -> Message:
        return Message(
            topic=track.place.topic,
            partition=track.place.partition,
            offset=arrived.offset() or 0,
            timestamp_ms=arrived.timestamp()[1],
            key=arrived.key(),
            value=arrived.value(),
            headers=tuple(arrived.headers() or ()),  # type: ignore[arg-type]  # what arrives is bytes or None
            _track=track,
            _source=self,
        )

    def _clear(self) -> None:
        now_s = self._clock.monotonic_s()
        if not self._arrived or now_s < self._not_before_s:
            return
        if self._commits.clear(self._arrived):
            with self._changed:
                self._ready.extend(self._arrived)
                self._arrived.clear()
        else:
            self._not_before_s = now_s + AGAIN_S

    def _put_back(self, messages: list[Message]) -> None:
        """These were handed over in vain: they come again, in order, before all others."""
        if not messages:
            return
        self._not_before_s = max(self._not_before_s, self._clock.monotonic_s() + AGAIN_S)
        with self._changed:
            self._in_hand = []
            self._open.clear()
            self._ids.clear()
            self._progress.hand_back()
            for message in reversed(messages):
                if _is_ours(message):
                    self._ready.appendleft(replace(message, attempt=message.attempt + 1))
                else:
                    self._uncount(1)

    # -- partitions: called by the intake, from within `wait` and `close`

    def gained(self, places: Collection[TopicPartition]) -> None:
        with self._changed:
            self._progress.gain(places)

    def revoked(self, places: Collection[TopicPartition]) -> None:
        # Once it is closed, everything that may be committed was.
        self._let_go(places, [] if self._is_closed else self._commits.revoked(places, self._unread()))

    def lost(self, places: Collection[TopicPartition]) -> None:
        self._let_go(places, [] if self._is_closed else self._commits.lost(places))

    def settled(self, place: TopicPartition, offset: int, is_done: bool) -> None:
        with self._changed:
            self._progress.settle(place, offset, is_done)

    def _let_go(self, places: Collection[TopicPartition], again: list[Message]) -> None:
        with self._changed:
            self._progress.lose(places)
            self._uncount(sum(message.attempt > 1 and not _is_ours(message) for message in self._ready))
            self._ready = deque(message for message in self._ready if _is_ours(message))
            self._arrived = deque(message for message in self._arrived if _is_ours(message))
            self._uncount(sum(not _is_ours(entry[2]) for entry in self._again))
            self._again = [entry for entry in self._again if _is_ours(entry[2])]
            heapify(self._again)
        self._put_back(again)

    def _uncount(self, messages: int) -> None:
        """Gives messages back to the limit: unfinished when their partition was lost, they are delivered again."""
        if self._left is not None:
            self._left += messages

    def _unread(self) -> dict[TopicPartition, int]:
        """From where on nobody has seen anything, in the partitions of which something waits here."""
        unread: dict[TopicPartition, int] = {}
        with self._changed:
            for message in self._ready:
                unread.setdefault(TopicPartition(message.topic, message.partition), message.offset)
        return unread

    # -- the end

    @property
    def is_slow(self) -> bool:
        """Whether taking and finishing may take their time too."""
        return self._handling is not None

    def is_over(self) -> bool:
        """Whether the loop has had what it wanted, or nothing has come for long enough. Commits what is finished."""
        if not self._is_enough():
            return False
        again = self._commits.conclude()
        self._put_back(again)
        return not again

    def _is_enough(self) -> bool:
        with self._changed:
            if self._open or self._again or (self._ready and self._ready[0].attempt > 1):
                return False
            if self._left == 0:
                return True
            if self._ready or self._arrived:
                return False
        idle_s = self._loop_options.idle_timeout_s
        if idle_s is None:
            return False
        now_s = self._clock.monotonic_s()
        if self._intake.is_joined and not self._was_joined:
            self._was_joined = True
            self._active_s = now_s  # idling begins when there is something to wait for
        patient_s = max(idle_s, self._settings.timeout_s)
        if self._was_joined:
            # While there is something that should come and does not, the cluster is slow, and nobody idle.
            return now_s - self._active_s >= (idle_s if self._intake.is_at_end else patient_s)
        if now_s - self._began_s >= patient_s:
            raise not_joined(now_s - self._began_s)
        return False

    @property
    def is_joined(self) -> bool:
        return self._intake.is_joined

    def close(self) -> None:
        """Commit what is finished, and leave the group."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._commits.close(self._unread())
        finally:
            self._intake.close()
            if self._handling is not None:
                self._handling.close()


def not_joined(waited_s: float) -> NotConnected:
    return NotConnected(
        f"no partitions were assigned in {waited_s:.0f} s: the cluster does not answer, or the group's members do "
        "not; look at `penstock group describe`, or give a longer timeout_s",
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )


def _is_ours(message: Message) -> bool:
    return message._track is not None and message._track.is_ours

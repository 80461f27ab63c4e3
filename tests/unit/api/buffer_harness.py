"""A MessageBuffer whose source and commits are played by the test."""

from collections import deque
from typing import Any

from confluent_kafka import Message as Arrived

from penstock.api.core.commits import AtLeastOnceCommits, AtMostOnceCommits, CommitPolicy
from penstock.api.core.encoding import Encoded
from penstock.api.core.exactly_once import TransactionalCommits
from penstock.api.core.handled import HandledFilter
from penstock.api.core.loop_options import LoopOptions
from penstock.api.core.message import Message
from penstock.api.core.message_buffer import MessageBuffer
from penstock.api.core.position_tracker import Offsets, PositionTracker
from penstock.api.core.settings import Settings
from penstock.api.errors import ApiError, SubscribeFailed, TransactionAborted
from penstock.foundation.ids import TopicPartition
from tests.simulation.clock import FakeClock

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
SETTINGS = Settings(servers="127.0.0.1:1", timeout_s=30)


def arrived(offset: int, place: TopicPartition = PLACE, tag: str | None = None) -> Arrived:
    return Arrived(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        value=b"%d" % offset,
        headers=[("tag", tag.encode())] if tag else None,
        timestamp=(1, 1000 + offset),
    )


class Script:
    """A source of the messages that a test adds; waiting moves the clock. It records commits."""

    def __init__(self, clock: FakeClock) -> None:
        self.is_joined = False
        self.is_closed = False
        self.is_at_end = True
        self.is_overdue = False
        self.committed: dict[TopicPartition, int] = {}
        self.refusing: set[TopicPartition] = set()
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.paused_polls = 0
        self._clock = clock
        self._brings: deque[list[Arrived]] = deque()
        self.buffer: MessageBuffer

    def bring(self, *messages: Arrived) -> None:
        self._brings.append(list(messages))

    def forget(self, place: TopicPartition) -> None:
        """What was on its way from a partition does not come any more."""
        self._brings = deque(
            [each for each in messages if (each.topic(), each.partition()) != place] for messages in self._brings
        )

    def poll(self, wait_s: float) -> list[Arrived]:
        if self.is_overdue:
            self.is_overdue = False
            self.buffer.on_lost([PLACE])
        if self._brings:
            return self._brings.popleft()
        self._clock.advance(int(wait_s * 1000) + 1)
        return []

    def poll_paused(self) -> list[Arrived]:
        self.paused_polls += 1
        return []

    def close(self) -> None:
        self.is_closed = True

    def join(self, *places: TopicPartition) -> None:
        self.is_joined = True
        self.buffer.on_assigned(places)

    def commit(self, offsets: Offsets) -> None:
        self.commits.append(("later", dict(offsets)))

    def commit_now(self, offsets: Offsets) -> dict[TopicPartition, ApiError]:
        self.commits.append(("now", dict(offsets)))
        failed = {place: SubscribeFailed("refused") for place in offsets if place in self.refusing}
        self.committed |= {place: offset for place, offset in offsets.items() if place not in failed}
        return failed


class PlayedLedger:
    """A transactional log in memory. The test says which transactions cannot be."""

    def __init__(self) -> None:
        self.is_broken = False
        self.failure: ApiError | None = None
        self.is_failing = False
        self.is_aborted = False
        """Whether an earlier message of the open transaction has failed."""
        self.log: list[bytes | None] = []
        self.offsets: dict[TopicPartition, int] = {}
        self.aborts = 0
        self._draft: list[bytes | None] | None = None

    def begin(self) -> None:
        assert self._draft is None, "a transaction is open already"
        self._draft = []

    def send(self, message: Encoded, *, is_waiting: bool = True) -> None:
        assert self._draft is not None, "no transaction is open"
        if self.is_aborted:
            raise TransactionAborted("an earlier message has failed")
        self._draft.append(message.value)

    def commit(self, offsets: Offsets | None = None, group: Any = None) -> None:
        assert self._draft is not None, "no transaction is open"
        draft, self._draft = self._draft, None
        if self.failure is not None:
            raise self.failure
        if self.is_failing:
            self.is_failing = False
            raise TransactionAborted("not today")
        self.log += draft
        self.offsets |= offsets or {}

    def abort(self) -> None:
        assert self._draft is not None, "no transaction is open"
        self._draft = None
        self.is_aborted = False
        self.aborts += 1


class BufferHarness:
    """A MessageBuffer with both of its ends."""

    def __init__(
        self,
        commits: str = "after",
        *,
        handled_filter: HandledFilter | None = None,
        batch: int = 10,
        **loop_options: Any,
    ) -> None:
        self.clock = FakeClock()
        self.source = Script(self.clock)
        self.tracker = PositionTracker()
        self.ledger = PlayedLedger()
        self.buffer = MessageBuffer(
            SETTINGS, LoopOptions(**loop_options), self.tracker, handled_filter, self.clock, self._pause
        )
        self.source.buffer = self.buffer
        self.commits = self._commits(commits, batch)
        self.buffer.begin(self.source, self.commits)

    def _commits(self, kind: str, batch: int) -> Any:
        made: dict[str, CommitPolicy] = {
            "never": CommitPolicy(),
            "after": AtLeastOnceCommits(self.source, self.tracker, 1.0, self.clock),
            "before": AtMostOnceCommits(self.source),
            "within": TransactionalCommits(
                self.ledger, lambda: None, self.tracker, batch=batch, batch_s=0.5, clock=self.clock
            ),
        }
        return made[kind]

    def _pause(self, wait_s: float) -> bool:
        self.clock.advance(int(wait_s * 1000) + 1)
        return False

    def next(self, most: int = 1, steps: int = 50) -> list[Message]:
        """What a loop does to get its next messages; none if it is over, or if nothing comes in so many steps."""
        self.buffer.finish_delivered()
        for _ in range(steps):
            if self.buffer.is_due():
                self.buffer.catch_up()
            taken = self.buffer.take(most)
            if taken:
                return taken
            if self.buffer.wait():
                return []
        return []

    def one(self) -> Message:
        (message,) = self.next()
        return message

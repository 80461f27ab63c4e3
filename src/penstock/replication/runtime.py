"""Runtime of a replicated state machine: one pure state machine on the log of one partition.

Decisions are appended and applied at once; replies and effects wait until their records are committed. When this
broker becomes leader, the state is rebuilt by replaying the log.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final

from penstock.foundation.clock import Clock, Timer
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import (
    NO_PRODUCER,
    NO_TICKET,
    Decision,
    RepeatedDecision,
    Reply,
    StateMachine,
    StateRecord,
    Ticket,
)
from penstock.foundation.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, PenstockError
from penstock.log.disk import ColdRead
from penstock.log.epochs import NO_EPOCH
from penstock.log.settings import Flush
from penstock.records.batch import BatchHeader, read_header
from penstock.records.build import build_pairs
from penstock.records.layout import TRANSACTIONAL
from penstock.replication.partition import Partition
from penstock.replication.replay import NOOP_KEY as NOOP_KEY
from penstock.replication.replay import RECORDS_AT_ONCE, Replay
from penstock.replication.state_batches import in_batches, plain_batch

logger = logging.getLogger(__name__)

LOAD_BYTES: Final = 256 << 10
FOLLOW_BYTES: Final = 64 << 10
"""Bytes that a standby state machine reads per time slice of the event loop; while loading, it reads LOAD_BYTES."""
EFFECTS_AT_ONCE: Final = 32
REPLIES_AT_ONCE: Final = 64
"""Maximum number of replies sent immediately when a decision is committed. The others are queued; each iteration
of the event loop sends at most EFFECTS_AT_ONCE of them."""

_PRODUCER_ERRORS: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    )
)
"""Error codes that are sent unchanged to a transactional producer, because the producer must not retry."""

Answer = Callable[[Any], None]
"""Callback for the reply to a command; called with the reply's value, or with a PenstockError."""


class StateRuntime:
    """Runs a state machine on a partition: as leader, or as standby, which only replays committed records. Owned by
    the event loop's thread."""

    def __init__(
        self,
        *,
        partition: Partition,
        machine: StateMachine,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        perform: Callable[[Any], None],
        on_skipped: Callable[[int], None] | None = None,
    ) -> None:
        """`perform`: carries out an effect (a side effect that a decision asks for). `on_skipped`: called with the
        number of records that replay has skipped; if None, an unreadable record stops the replay."""
        self.partition = partition
        self.machine = machine
        self._apply_batch: Callable[[Any, BatchHeader], None] | None = getattr(machine, "apply_batch", None)
        """Function that applies a whole batch at once, if the state machine is a BatchedMachine; else None."""
        self._replay = Replay(machine, partition.name, on_skipped)
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._perform = perform
        self.is_loaded = False
        self.has_failed = False
        """Whether replay failed: the state machine may have applied part of a batch, and must not be used."""
        self._is_closed = False
        self._tickets = itertools.count()
        self._answers: dict[Ticket, Answer] = {}
        self._read_to: int | None = None
        self._read_epoch = NO_EPOCH
        """Leader epoch of the last replayed record; the offset after that record is `_read_to`."""
        self._read_end: int | None = None
        """Offset up to which the log must be replayed before the first decision."""
        self._effects: deque[Any] = deque()
        self._is_performing = False
        """Whether effects are being performed or are scheduled."""
        self.ahead_ms = 0
        """Difference between the state machine's time and the steady clock, in milliseconds; see `now_ms`."""
        self._armed_ms: int | None = None
        self._disarm: Callable[[], None] | None = None

    @property
    def now_ms(self) -> int:
        """The state machine's time in ms: a monotonic clock (`Clock.steady_ms`) plus the offset `ahead_ms`. With
        `machine.keeps_wall_time`, the sum is the wall-clock time: `ahead_ms` is set when the log is loaded, and
        updated by broker/queues/clock_steps.py when the wall clock is set."""
        return self._clock.steady_ms() + self.ahead_ms

    # -- loading and closing

    async def load(self, on_read: Callable[[], None] = lambda: None) -> None:
        """Replays the log, waits until it is committed, then accepts commands. `on_read`: called after the replay."""
        has_more = True
        while has_more:
            try:
                has_more = self.read_back()
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
            await asyncio.sleep(0)
        on_read()
        begun = asyncio.Event()
        self.begin_when_committed(begun.set)
        await begun.wait()

    def follow(self) -> bool:
        """As a standby: replays some committed records. Returns whether there may be more. Raises ColdRead."""
        return self._read_next(min(self.partition.high_watermark, self.partition.log.end_offset), FOLLOW_BYTES)

    def read_back(self) -> bool:
        """Replays up to LOAD_BYTES of the log while loading. Returns whether there may be more. Raises ColdRead."""
        if self._read_end is None:
            self._read_end = self.partition.log.end_offset
        return self._read_next(self._read_end, LOAD_BYTES)

    def _read_next(self, end: int, max_bytes: int) -> bool:
        log, replay = self.partition.log, self._replay
        if self._read_to is None:
            self._read_to = log.start_offset
        before = self._read_to
        if replay.is_busy and not self._is_closed:
            replay.resume()
            return True
        if self._is_closed or before >= end:
            return False
        data, count = log.read(before, max_bytes, end), 0
        for at, header in replay.batches(data, before):
            if header.base_offset >= before:
                count += replay.apply(memoryview(data)[at : at + header.size_bytes], header)
            self._read_to = header.next_offset
            if replay.is_busy or count >= RECORDS_AT_ONCE:
                break
        self._read_epoch = log.epochs.at(self._read_to - 1)
        return self._read_to > before  # else compaction has removed the rest

    @property
    def skipped_count(self) -> int:
        """Number of unreadable records that were skipped."""
        return self._replay.skipped_count

    @property
    def has_diverged(self) -> bool:
        """Whether replayed records are no longer in the log, because an unclean election has truncated them."""
        log, at = self.partition.log, self._read_to
        if at is None:
            return False
        return not log.start_offset <= at <= log.end_offset or (
            at > log.start_offset and log.epochs.at(at - 1) != self._read_epoch
        )

    def begin_when_committed(self, then: Callable[[], None]) -> None:
        """When all replayed records are committed, accepts commands and calls `then`. Until that time, the records
        could still be lost. If this broker stops leading first, only calls `then`."""

        end = self._read_end or 0

        def begin() -> None:
            if not self._is_closed and self.partition.has_committed(end):
                if getattr(self.machine, "keeps_wall_time", False):
                    self.ahead_ms = self._clock.now_ms() - self._clock.steady_ms()
                self.machine.loaded(self.now_ms)
                self.partition.on_marker = self._on_marker
                self.is_loaded = True
                self._arm()
            then()

        self.partition.when_committed(end, begin)

    def close(self, error: PenstockError) -> None:
        """Stops the runtime when this broker no longer leads; all waiting requests get `error`."""
        self._is_closed = True
        self.is_loaded = False
        self.partition.on_marker = None
        if self._disarm is not None:
            self._disarm()
            self._disarm = None
        self._effects.clear()  # the next leader repeats them
        waiting, self._answers = self._answers, {}
        for answer in waiting.values():
            answer(error)

    # -- deciding

    def submit(self, command: Any, answer: Answer) -> Ticket:
        """Passes a command to the state machine and persists its decision. Calls `answer` once with the reply or
        an error, immediately or much later. Returns a ticket for `forget`."""
        if not self.is_loaded:
            answer(CoordinatorLoadInProgress(f"{self.partition.name} is loading; retry"))
            return NO_TICKET
        ticket = next(self._tickets)
        self._answers[ticket] = answer
        try:
            decision = self.machine.decide(ticket, command, self.now_ms)
        except PenstockError as error:
            self._answer(ticket, error)
        else:
            self._carry_out(decision)
        self._arm()
        return ticket

    def forget(self, ticket: Ticket, command: Any) -> None:
        """Cancels a submitted request: drops its `answer` callback and posts `command`, which tells the state
        machine that the client has disconnected. Does nothing if the reply was already given."""
        if self._answers.pop(ticket, None) is not None:
            self.post(command)

    @property
    def may_repeat(self) -> bool:
        """Whether `repeat` can be used: records are committed as soon as appended (no other replicas, no fsync)."""
        partition = self.partition
        return (
            self.is_loaded
            and partition.leadership is None
            and partition.is_online
            and partition.log.settings.flush is Flush.OS
        )

    def repeat(self, repeated: RepeatedDecision, values: Any) -> bool:
        """Fast path: persists and applies an earlier decision again with new `values`, such as the offsets
        of the next commit. Returns True if it is committed. False: nothing was persisted; call `submit` instead."""
        if not self.may_repeat:
            return False
        partition, now_ms = self.partition, self.now_ms
        body = repeated.decide(values, now_ms)
        if body is None:
            return False
        try:
            appended = partition.append_own(plain_batch(body, repeated.count, now_ms), now_ms)
        except PenstockError:
            return False
        repeated.apply(values, now_ms)
        self._arm()
        return partition.high_watermark > appended.last_offset

    def post(self, command: Any) -> None:
        """Passes a command that needs no reply to the state machine, and persists its decision. Does nothing while
        the state machine is not loaded."""
        if self.is_loaded:
            self._carry_out(self.machine.decide(NO_TICKET, command, self.now_ms))
            self._arm()

    def _carry_out(self, decision: Decision) -> None:
        if decision.persist:
            try:
                self._persist(decision)
            except PenstockError as error:
                self._refuse(decision, error)
                return
        elif decision.must_lead and self.partition.has_followers and not self._append_noop(decision):
            return
        if not decision.replies and not decision.effects:
            return
        # Read-only replies wait for earlier decisions as well: a reply must not show state that may still be lost.
        end = self.partition.log.end_offset
        if self.partition.high_watermark >= end:
            self._deliver(decision)
        else:
            self.partition.when_committed(end, lambda: self._deliver_if_committed(decision, end))

    def _persist(self, decision: Decision) -> None:
        """Appends the records and applies them batch by batch, so that the state machine matches the log. A batch
        is atomic: neither a crash nor a new leader leaves a part of it."""
        self.partition.check_in_sync()
        now_ms = self.now_ms
        producer_id, epoch = decision.transaction or (NO_PRODUCER, -1)
        is_one = decision.is_atomic or len(decision.persist) == 1
        for records in (decision.persist,) if is_one else in_batches(decision.persist):
            batch = build_pairs(
                [(record.key, record.value) for record in records],
                now_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                attributes=0 if decision.transaction is None else TRANSACTIONAL,
            )
            self.partition.append_own(batch, now_ms)
            if self._apply_batch is not None:
                self._apply_batch(batch, read_header(batch))
                continue
            for record in records:
                self.machine.apply(record, producer_id)

    def append_snapshot(self, records: Iterable[StateRecord]) -> None:
        """Appends a snapshot of the whole state and trims the log before it, for a log without compaction."""
        if not self.is_loaded or not self.partition.is_leader:
            return
        log, start, now_ms = self.partition.log, self.partition.log.end_offset, self.now_ms
        for batch in in_batches(records):
            self.partition.append_own(build_pairs([(each.key, each.value) for each in batch], now_ms), now_ms)
        end = log.end_offset

        def forget() -> None:
            if self.partition.has_committed(end) and log.start_offset < start:
                log.trim(start)

        self.partition.when_committed(end, forget)

    def _append_noop(self, decision: Decision) -> bool:
        """Appends an empty record for a decision without records. Its commit proves that this broker still leads;
        the decision's replies wait for it. If the append fails, sends errors instead of replies and returns False."""
        now_ms = self.now_ms
        try:
            self.partition.append_own(build_pairs([(NOOP_KEY, None)], now_ms), now_ms)
        except PenstockError as error:
            self._refuse(decision, error)
            return False
        return True

    def _refuse(self, decision: Decision, error: PenstockError) -> None:
        refusal = self._refusal(error)
        for reply in decision.replies:
            self._answer(reply.ticket, refusal)

    def _refusal(self, error: PenstockError) -> PenstockError:
        """Converts the error of a failed append to CoordinatorNotAvailable, except those in _PRODUCER_ERRORS."""
        if error.code in _PRODUCER_ERRORS:
            return error
        logger.warning("state_not_persisted partition=%s reason=%r", self.partition.name, str(error))
        return CoordinatorNotAvailable(f"{self.partition.name} cannot be written: {error}")

    def _deliver_if_committed(self, decision: Decision, end: int) -> None:
        """Delivers the decision's replies if this broker still leads and the high watermark has reached the offset
        `end`. Otherwise `close` answers the requests with an error."""
        if self.partition.is_leader and self.partition.high_watermark >= end:
            self._deliver(decision)

    def _deliver(self, decision: Decision) -> None:
        if self._is_closed or not self.partition.is_online:
            return  # `close` answers the waiting requests
        replies = decision.replies
        for reply in replies if len(replies) <= REPLIES_AT_ONCE else replies[:REPLIES_AT_ONCE]:
            self._answer(reply.ticket, reply.value)
        if decision.effects or len(replies) > REPLIES_AT_ONCE:
            self._effects += replies[REPLIES_AT_ONCE:]
            self._effects += decision.effects
            if not self._is_performing:
                self._perform_some()

    def _perform_some(self) -> None:
        """Carries out effects and sends replies in order, a limited number per iteration of the event loop."""
        self._is_performing = True  # performing one may add others
        count = 0
        while self._effects and count < EFFECTS_AT_ONCE:
            effect = self._effects.popleft()
            if isinstance(effect, Reply):
                self._answer(effect.ticket, effect.value)
            else:
                self._perform(effect)
            count += 1
        if self._effects:
            self._timer(0, self._perform_some)
        else:
            self._is_performing = False

    def _answer(self, ticket: Ticket, value: Any) -> None:
        answer = self._answers.pop(ticket, None)
        if answer is not None:
            answer(value)

    def _on_marker(self, producer_id: int, committed: bool) -> None:
        """Tells the state machine that a transaction with records in this partition was committed or aborted."""
        self.machine.end_transaction(producer_id, committed)
        self._arm()

    # -- waking

    def _arm(self) -> None:
        """Sets the timer for `_wake`. An earlier timer is kept: `_wake` does nothing if called too early."""
        wanted_ms = self.machine.wake_at_ms if self.is_loaded else None
        if wanted_ms is None or (self._armed_ms is not None and self._armed_ms <= wanted_ms):
            return
        if self._disarm is not None:
            self._disarm()
        self._armed_ms = wanted_ms
        wait_s = max(0, wanted_ms - self.now_ms) / 1000
        self._disarm = self._timer(wait_s, self._wake)

    def _wake(self) -> None:
        self._disarm = self._armed_ms = None
        if self.is_loaded:
            self._carry_out(self.machine.wake(self.now_ms))
            self._arm()

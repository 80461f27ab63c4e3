"""The replicated-state runtime: one pure state machine on the log of one partition.

What the machine decides is appended and applied at once; replies and effects wait until it is committed. What was
decided before is read back from the log when this broker takes the partition over.
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
    NOBODY,
    Decision,
    Repeated,
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
from penstock.replication.replay import NOTE_KEY as NOTE_KEY
from penstock.replication.replay import RECORDS_AT_ONCE, Replay
from penstock.replication.state_batches import in_batches, plain_batch

logger = logging.getLogger(__name__)

LOAD_BYTES: Final = 256 << 10
FOLLOW_BYTES: Final = 64 << 10
"""Read back at a time, and while another broker leads: between two reads the event loop does other things."""
EFFECTS_AT_ONCE: Final = 32
REPLIES_AT_ONCE: Final = 64
"""Effects of one machine that are carried out in one iteration of the event loop."""

_PRODUCERS_OWN: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    )
)
"""Refusals that the producer of a transaction must hear of as they are: it would try again for nothing."""

Answer = Callable[[Any], None]
"""Takes a reply's value, or the PenstockError that stands in its place."""


class StateRuntime:
    """Runs a machine on a partition that this broker leads. Owned by the event loop's thread."""

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
        """`on_skipped`: see Replay."""
        self.partition = partition
        self.machine = machine
        self._apply_batch: Callable[[Any, BatchHeader], None] | None = getattr(machine, "apply_batch", None)
        """Of a BatchedMachine."""
        self._replay = Replay(machine, partition.name, on_skipped)
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._perform = perform
        self.is_loaded = False
        self.has_failed = False
        """Whether reading its log stopped halfway: the machine may have applied part of a batch, and is of no use."""
        self._is_closed = False
        self._tickets = itertools.count()
        self._answers: dict[Ticket, Answer] = {}
        self._read_to: int | None = None
        self._read_epoch = NO_EPOCH
        """How far the log was read, and who led when that was written."""
        self._read_end: int | None = None
        """How far it must be read before anything is decided."""
        self._effects: deque[Any] = deque()
        self._is_performing = False
        """Whether effects are being carried out, or the rest of them will be."""
        self.ahead_ms = 0
        """What the machine's time is ahead of the steady clock: see `now_ms`."""
        self._armed_ms: int | None = None
        self._disarm: Callable[[], None] | None = None

    @property
    def now_ms(self) -> int:
        """The machine's time. It runs steadily; one that keeps wall time begins at the wall clock's.

        Deadlines that are persisted must mean the same to the next leader, so the owner of such a machine moves them,
        and `ahead_ms`, when the wall clock is set.
        """
        return self._clock.steady_ms() + self.ahead_ms

    # -- taking over and giving up

    async def load(self, on_read: Callable[[], None] = lambda: None) -> None:
        """Read everything back, then decide from there. `on_read`: it was read, and waits to be committed."""
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
        """While another broker leads: read a piece of what is committed; whether there is more. Raises ColdRead.

        So little is left to read when this broker is elected.
        """
        return self._read_on(min(self.partition.high_watermark, self.partition.log.end_offset), FOLLOW_BYTES)

    def read_back(self) -> bool:
        """Read a piece of what was decided before; whether there is more. Raises ColdRead."""
        if self._read_end is None:
            self._read_end = self.partition.log.end_offset
        return self._read_on(self._read_end, LOAD_BYTES)

    def _read_on(self, end: int, max_bytes: int) -> bool:
        log, replay = self.partition.log, self._replay
        if self._read_to is None:
            self._read_to = log.start_offset
        before = self._read_to
        if replay.is_busy and not self._is_closed:
            replay.go_on()
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
        return self._read_to > before  # if not, compaction left nothing from here on

    @property
    def skipped_count(self) -> int:
        """Records of its log that could not be read and were skipped."""
        return self._replay.skipped_count

    @property
    def is_astray(self) -> bool:
        """Whether the log holds something else than what was read: only an unclean election takes back so much."""
        log, at = self.partition.log, self._read_to
        if at is None:
            return False
        return not log.start_offset <= at <= log.end_offset or (
            at > log.start_offset and log.epochs.at(at - 1) != self._read_epoch
        )

    def begin_when_committed(self, then: Callable[[], None]) -> None:
        """Decide from now on; or, since nobody is told what may yet be lost, when all that was read is committed."""

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
        """Another broker decides from now on, or none: whoever waits is told so."""
        self._is_closed = True
        self.is_loaded = False
        self.partition.on_marker = None
        if self._disarm is not None:
            self._disarm()
            self._disarm = None
        self._effects.clear()  # whoever takes over begins them again
        waiting, self._answers = self._answers, {}
        for answer in waiting.values():
            answer(error)

    # -- deciding

    def submit(self, command: Any, answer: Answer) -> Ticket:
        """Have a command decided. The answer comes once, maybe at once, maybe much later."""
        if not self.is_loaded:
            answer(CoordinatorLoadInProgress(f"{self.partition.name} is being read back; try again"))
            return NOBODY
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
        """Nobody waits for an answer any more; the command says so to the machine."""
        if self._answers.pop(ticket, None) is not None:
            self.tell(command)

    @property
    def may_repeat(self) -> bool:
        """Whether what is decided here is committed as soon as it is appended, as far as can be told before."""
        partition = self.partition
        return (
            self.is_loaded
            and partition.leadership is None
            and partition.is_online
            and partition.log.settings.flush is Flush.OS
        )

    def repeat(self, repeated: Repeated, said: Any) -> bool:
        """Have decided once more what was decided before, where that is committed at once: whether it is.

        False: `submit` the command. That is the place for whatever is unusual, an error too.
        """
        if not self.may_repeat:
            return False
        partition, now_ms = self.partition, self.now_ms
        body = repeated.decide(said, now_ms)
        if body is None:
            return False
        try:
            appended = partition.append_own(plain_batch(body, repeated.count, now_ms), now_ms)
        except PenstockError:
            return False
        repeated.apply(said, now_ms)
        self._arm()
        return partition.high_watermark > appended.last_offset

    def tell(self, command: Any) -> None:
        """Have a command decided that nobody waits for. Who is not loaded yet will see the state of things then."""
        if self.is_loaded:
            self._carry_out(self.machine.decide(NOBODY, command, self.now_ms))
            self._arm()

    def _carry_out(self, decision: Decision) -> None:
        if decision.persist:
            try:
                self._persist(decision)
            except PenstockError as error:
                self._refuse(decision, error)
                return
        elif decision.must_lead and self.partition.has_followers and not self._note(decision):
            return
        if not decision.replies and not decision.effects:
            return
        # Whoever only asked must not be told what may yet be lost: all replies wait for all that was decided.
        end = self.partition.log.end_offset
        if self.partition.high_watermark >= end:
            self._deliver(decision)
        else:
            self.partition.when_committed(end, lambda: self._deliver_if_committed(decision, end))

    def _persist(self, decision: Decision) -> None:
        """Append the records and apply them: batch by batch, so that the machine knows what the log does.

        A batch is what a log has or has not: neither a crash nor another leader ever leaves a part of one.
        """
        self.partition.check_in_sync()
        now_ms = self.now_ms
        producer_id, epoch = decision.transaction or (NO_PRODUCER, -1)
        is_one = decision.is_whole or len(decision.persist) == 1
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

    def sum_up(self, records: Iterable[StateRecord]) -> None:
        """Have all that is known said anew, by these records, and forget what was said before: what a log needs that
        nobody compacts."""
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

    def _note(self, decision: Decision) -> bool:
        """Append what says nothing: who has been replaced never sees it committed. Whether that could be done."""
        now_ms = self.now_ms
        try:
            self.partition.append_own(build_pairs([(NOTE_KEY, None)], now_ms), now_ms)
        except PenstockError as error:
            self._refuse(decision, error)
            return False
        return True

    def _refuse(self, decision: Decision, error: PenstockError) -> None:
        refusal = self._refusal(error)
        for reply in decision.replies:
            self._answer(reply.ticket, refusal)

    def _refusal(self, error: PenstockError) -> PenstockError:
        """What those are told whose records could not be persisted."""
        if error.code in _PRODUCERS_OWN:
            return error
        logger.warning("state_not_persisted partition=%s reason=%r", self.partition.name, str(error))
        return CoordinatorNotAvailable(f"{self.partition.name} cannot be written: {error}")

    def _deliver_if_committed(self, decision: Decision, end: int) -> None:
        """Who no longer leads does not know what became of it: `close` tells whoever waits."""
        if self.partition.is_leader and self.partition.high_watermark >= end:
            self._deliver(decision)

    def _deliver(self, decision: Decision) -> None:
        if self._is_closed or not self.partition.is_online:
            return  # `close` tells, or has told, whoever waits
        replies = decision.replies
        for reply in replies if len(replies) <= REPLIES_AT_ONCE else replies[:REPLIES_AT_ONCE]:
            self._answer(reply.ticket, reply.value)
        if decision.effects or len(replies) > REPLIES_AT_ONCE:
            self._effects += replies[REPLIES_AT_ONCE:]
            self._effects += decision.effects
            if not self._is_performing:
                self._perform_some()

    def _perform_some(self) -> None:
        """Carry out effects in their order, so many at a time: one decision may want thousands, or have as many
        replies."""
        self._is_performing = True  # carrying one out may lead to others
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
        """A transaction that wrote to this partition has ended."""
        self.machine.end_transaction(producer_id, committed)
        self._arm()

    # -- waking

    def _arm(self) -> None:
        """Have `_wake` called when the machine wants it, or sooner: a timer that is too early finds nothing to do."""
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
